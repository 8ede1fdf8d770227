// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Ports of `workload serve`. HTTPS is off where no certificate is mounted.
const (
	plainAddr  = ":8080"
	secureAddr = ":8443"
	certFile   = "/tls/tls.crt"
	keyFile    = "/tls/tls.key"
	proxyCA    = "/tls/front-proxy-ca.crt"
)

// serve answers /echo over HTTP, and admission reviews and the aggregated API over HTTPS.
func serve() error {
	failed := make(chan error, 2)
	plain := http.NewServeMux()
	plain.HandleFunc("/echo", echo)
	go listen(failed, &http.Server{Addr: plainAddr, Handler: plain, ReadHeaderTimeout: 10 * time.Second}, false)
	if _, err := os.Stat(certFile); err == nil {
		server, err := secureServer()
		if err != nil {
			return err
		}
		go listen(failed, server, true)
	}
	return <-failed
}

func listen(failed chan<- error, s *http.Server, secure bool) {
	fmt.Printf("serving on %s (tls %v)\n", s.Addr, secure)
	if secure {
		failed <- s.ListenAndServeTLS(certFile, keyFile)
		return
	}
	failed <- s.ListenAndServe()
}

func secureServer() (*http.Server, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/mutate", mutate)
	mux.Handle("/apis/", frontProxyOnly(http.HandlerFunc(aggregated)))
	mux.Handle("/openapi/", http.NotFoundHandler())
	pem, err := os.ReadFile(proxyCA)
	if err != nil {
		return nil, fmt.Errorf("read the CA of kube-apiserver's proxy client: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New(proxyCA + " holds no certificate")
	}
	return &http.Server{
		Addr: secureAddr, Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		// Webhook calls carry no client certificate, aggregated ones must: decided per path.
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: pool},
	}, nil
}

// echo answers with the name of its cluster and with what it was sent, so that a caller can tell its own
// answer from a neighbour's.
func echo(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s echoes %s\n", os.Getenv("CLUSTER"), r.URL.Query().Get("word"))
	if r.Method == http.MethodPost {
		io.Copy(w, r.Body) // a broken client sees its own error
	}
}

// mutate is the admission webhook: it denies what asks for it and labels everything else.
func mutate(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID    string `json:"uid"`
			Object struct {
				Metadata struct {
					Labels map[string]string `json:"labels"`
				} `json:"metadata"`
			} `json:"object"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response := map[string]any{"uid": review.Request.UID, "allowed": true}
	labels := review.Request.Object.Metadata.Labels
	if labels["verdict"] == "deny" {
		response["allowed"] = false
		response["status"] = map[string]any{"message": "denied by the webhook in the pod"}
	} else {
		patch := `[{"op":"add","path":"/metadata/labels/seen","value":"yes"}]`
		if labels == nil {
			patch = `[{"op":"add","path":"/metadata/labels","value":{"seen":"yes"}}]`
		}
		response["patchType"] = "JSONPatch"
		response["patch"] = []byte(patch) // marshals to base64
	}
	fmt.Println("admission review", review.Request.UID)
	answer(w, map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

// frontProxyOnly lets pass only what kube-apiserver's aggregator sent: a verified client certificate.
func frontProxyOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "only kube-apiserver's proxy client may ask", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// The aggregated API: one group, one version, one read-only resource whose single object says who asked.
const (
	group   = "rig.tombolo.test"
	version = "v1"
)

func aggregated(w http.ResponseWriter, r *http.Request) {
	served := map[string]any{"groupVersion": group + "/" + version, "version": version}
	switch r.URL.Path {
	case "/apis":
		answer(w, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{
			map[string]any{"name": group, "versions": []any{served}, "preferredVersion": served}}})
	case "/apis/" + group:
		answer(w, map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": group,
			"versions": []any{served}, "preferredVersion": served})
	case "/apis/" + group + "/" + version:
		answer(w, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group + "/" + version,
			"resources": []any{map[string]any{"name": "callers", "singularName": "caller", "namespaced": false,
				"kind": "Caller", "verbs": []string{"get", "list"}}}})
	case "/apis/" + group + "/" + version + "/callers":
		answer(w, map[string]any{"kind": "CallerList", "apiVersion": group + "/" + version,
			"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{caller(r)}})
	case "/apis/" + group + "/" + version + "/callers/me":
		answer(w, caller(r))
	default:
		http.NotFound(w, r)
	}
}

func caller(r *http.Request) map[string]any {
	return map[string]any{"kind": "Caller", "apiVersion": group + "/" + version,
		"metadata": map[string]any{"name": "me"}, "user": r.Header.Get("X-Remote-User")}
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		fmt.Println("answer:", err) // the caller went away; it sees its own error
	}
}
