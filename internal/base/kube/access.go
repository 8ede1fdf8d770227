// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/private"
)

// serviceAccount is the folder of a pod's token and CA.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// Access is the address of the API server and the credentials for it. Certificate files
// are read again for each connection, tokens for each request, because they rotate.
type Access struct {
	Server     *url.URL
	ServerName string // in the server's certificate; empty: the host of Server
	Proxy      *url.URL
	CA         material // empty: the CAs of the system
	Cert, Key  material
	Token      material
}

// material is a part of a credential, or the file with it.
type material struct {
	data []byte
	file string
}

func (m material) empty() bool { return len(m.data) == 0 && m.file == "" }

func (m material) read() ([]byte, error) {
	if m.file == "" {
		return m.data, nil
	}
	return readFile(m.file)
}

// String never shows the content.
func (m material) String() string { return cmp.Or(m.file, "(given in the file)") }

func readFile(path string) ([]byte, error) {
	return private.ReadPublic(path, kubeConfigFile)
}

// Load reads a kubeconfig, or without one uses a pod's service account.
func Load(kubeconfig string, getenv func(string) string) (Access, error) {
	if kubeconfig == "" {
		return inCluster(getenv)
	}
	data, err := readFile(kubeconfig)
	if err != nil {
		return Access{}, fault.New(fault.CodeConfig, "the kubeconfig cannot be read").Because(err).
			Hint("name one that this process may read, such as kubelet's /etc/kubernetes/kubelet.conf")
	}
	return ReadKubeconfig(kubeconfig, data)
}

func inCluster(getenv func(string) string) (Access, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return Access{}, fault.New(fault.CodeConfig, "there is no access to the Kubernetes API").
			Whyf("no kubeconfig is named, and this is not a pod: KUBERNETES_SERVICE_HOST is not set").
			Hint("name a kubeconfig, such as kubelet's /etc/kubernetes/kubelet.conf")
	}
	return Access{
		Server: &url.URL{Scheme: "https", Host: net.JoinHostPort(host, port)},
		CA:     material{file: filepath.Join(serviceAccount, "ca.crt")},
		Token:  material{file: filepath.Join(serviceAccount, "token")},
	}, nil
}

// kubeconfig has the fields that are read. Unknown fields are not an error, since the
// file belongs to other programs.
type kubeconfig struct {
	Current  string `yaml:"current-context"`
	Contexts []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string      `yaml:"name"`
		Cluster kubeCluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string   `yaml:"name"`
		User kubeUser `yaml:"user"`
	} `yaml:"users"`
}

type kubeCluster struct {
	Server     string `yaml:"server"`
	ServerName string `yaml:"tls-server-name"`
	CAFile     string `yaml:"certificate-authority"`
	CAData     string `yaml:"certificate-authority-data"`
	Insecure   bool   `yaml:"insecure-skip-tls-verify"`
	Proxy      string `yaml:"proxy-url"`
}

type kubeUser struct {
	CertFile  string `yaml:"client-certificate"`
	CertData  string `yaml:"client-certificate-data"`
	KeyFile   string `yaml:"client-key"`
	KeyData   string `yaml:"client-key-data"`
	Token     string `yaml:"token"`
	TokenFile string `yaml:"tokenFile"`
	Username  string `yaml:"username"`
	As        string `yaml:"as"`
	Exec      any    `yaml:"exec"`
	Provider  any    `yaml:"auth-provider"`
}

// ReadKubeconfig reads the current context of a kubeconfig. Paths in it are
// relative to the file.
func ReadKubeconfig(file string, data []byte) (Access, error) {
	bad := func(format string, args ...any) (Access, error) {
		return Access{}, fault.Newf(fault.CodeConfig, "the kubeconfig %s cannot be used", file).Whyf(format, args...).
			Hint("kubectl --kubeconfig %s config view shows what is in it", file)
	}
	var raw kubeconfig
	if err := yaml.Unmarshal(data, &raw); err != nil {
		return bad("it is not a kubeconfig in YAML") // the library's error may quote a secret
	}
	var cluster *kubeCluster
	var user *kubeUser
	for _, c := range raw.Contexts {
		if c.Name != raw.Current || cluster != nil {
			continue
		}
		for i := range raw.Clusters {
			if raw.Clusters[i].Name == c.Context.Cluster && cluster == nil {
				cluster = &raw.Clusters[i].Cluster
			}
		}
		for i := range raw.Users {
			if raw.Users[i].Name == c.Context.User && user == nil {
				user = &raw.Users[i].User
			}
		}
	}
	if cluster == nil || user == nil {
		return bad("its current-context %q does not name a cluster and a user in it", raw.Current)
	}
	r := fields{dir: filepath.Dir(file)}
	out := Access{
		Server: r.url("server", cluster.Server, "https"), ServerName: cluster.ServerName,
		CA:    r.material("certificate-authority", cluster.CAFile, cluster.CAData),
		Cert:  r.material("client-certificate", user.CertFile, user.CertData),
		Key:   r.material("client-key", user.KeyFile, user.KeyData),
		Token: material{data: []byte(user.Token)},
	}
	if user.TokenFile != "" {
		out.Token = material{file: r.path(user.TokenFile)}
	}
	if cluster.Proxy != "" {
		out.Proxy = r.url("proxy-url", cluster.Proxy, "http", "https")
	}
	switch {
	case cluster.Insecure:
		return bad("it has insecure-skip-tls-verify: any server would be trusted")
	case user.Exec != nil || user.Provider != nil:
		return bad("it has exec or auth-provider: Tombolo runs no other program to get a token")
	case user.Username != "" || user.As != "":
		return bad("it has username or as: a client certificate or a token is needed")
	case r.problem != "":
		return bad("%s", r.problem)
	case out.Cert.empty() != out.Key.empty():
		return bad("client-certificate and client-key belong together")
	case out.Cert.empty() && out.Token.empty():
		return bad("the user %q has neither a client certificate nor a token", raw.Current)
	}
	return out, nil
}

// fields reads the fields of a kubeconfig and keeps the first problem.
type fields struct {
	dir     string
	problem string
}

func (r *fields) path(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(r.dir, p)
}

func (r *fields) material(name, file, data string) material {
	if data != "" { // as in kubectl, the data take precedence over the file
		out, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			r.problem = cmp.Or(r.problem, name+"-data is not base64")
		}
		return material{data: out}
	}
	if file != "" {
		return material{file: r.path(file)}
	}
	return material{}
}

func (r *fields) url(name, text string, schemes ...string) *url.URL {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || !strings.HasPrefix(text, u.Scheme+"://") ||
		name == "server" && u.User != nil {
		r.problem = cmp.Or(r.problem, name+" is not the URL of a server")
		return nil
	}
	for _, s := range schemes {
		if u.Scheme == s {
			return u
		}
	}
	r.problem = cmp.Or(r.problem, fmt.Sprintf("%s begins with %s://: %s is needed", name, u.Scheme,
		strings.Join(schemes, " or ")))
	return nil
}

// transport makes connections with the present content of the files.
func (a Access) transport(dial dialFunc) (*http.Transport, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.ServerName}
	if !a.CA.empty() {
		pem, err := a.CA.read()
		if err != nil {
			return nil, fmt.Errorf("the API server's CA: %w", err)
		}
		if conf.RootCAs = x509.NewCertPool(); !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the API server's CA %s holds no certificate", a.CA)
		}
	}
	if !a.Cert.empty() {
		if _, err := a.pair(); err != nil {
			return nil, err
		}
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return a.pair() }
	}
	out := &http.Transport{
		TLSClientConfig: conf, ForceAttemptHTTP2: true, DialContext: dial,
		TLSHandshakeTimeout: kubeAnswer, MaxResponseHeaderBytes: 64 << 10,
		Proxy: http.ProxyFromEnvironment,
		HTTP2: &http.HTTP2Config{SendPingTimeout: kubePing, PingTimeout: kubePong},
	}
	if a.Proxy != nil {
		out.Proxy = http.ProxyURL(a.Proxy)
	}
	return out, nil
}

// pair reads the client certificate.
func (a Access) pair() (*tls.Certificate, error) {
	cert, err := a.Cert.read()
	if err != nil {
		return nil, fmt.Errorf("the client certificate: %w", err)
	}
	key, err := a.Key.read()
	if err != nil {
		return nil, fmt.Errorf("the client key: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("the client certificate %s and key %s: %w", a.Cert, a.Key, err)
	}
	return &pair, nil
}
