// SPDX-License-Identifier: Apache-2.0

package istio

import "encoding/json"

// The kinds that are read and written.
const (
	APINetworking = "networking.istio.io/v1alpha3"
	APISecurity   = "security.istio.io/v1"

	KindEnvoyFilter         = "EnvoyFilter"
	KindAuthorizationPolicy = "AuthorizationPolicy"
	KindConfigMap           = "ConfigMap"
)

// TypeMeta says what an object is.
type TypeMeta struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
}

// Meta is what is read and written of an object's metadata.
type Meta struct {
	Name              string            `json:"name,omitempty"`
	Namespace         string            `json:"namespace,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	CreationTimestamp string            `json:"creationTimestamp,omitempty"` // RFC 3339 in UTC: it sorts as a text
	ResourceVersion   string            `json:"resourceVersion,omitempty"`   // that was read
}

func (m Meta) key() string { return m.Namespace + "/" + m.Name }

// Gateway is what is read of a Gateway.
type Gateway struct {
	TypeMeta
	Metadata Meta        `json:"metadata"`
	Spec     GatewaySpec `json:"spec"`
}

// GatewaySpec lists the servers of some workloads.
type GatewaySpec struct {
	Selector map[string]string `json:"selector,omitempty"`
	Servers  []Server          `json:"servers,omitempty"`
}

// Server is one port of a Gateway, for some hosts.
type Server struct {
	Name  string     `json:"name,omitempty"`
	Bind  string     `json:"bind,omitempty"`
	Hosts []string   `json:"hosts,omitempty"`
	Port  Port       `json:"port"`
	TLS   *ServerTLS `json:"tls,omitempty"`
}

// Port is the port of a server.
type Port struct {
	Name     string `json:"name,omitempty"`
	Number   uint32 `json:"number"`
	Protocol string `json:"protocol"`
}

// ServerTLS says who ends TLS.
type ServerTLS struct {
	Mode          string `json:"mode,omitempty"` // empty: PASSTHROUGH
	HTTPSRedirect bool   `json:"httpsRedirect,omitempty"`
}

// VirtualService is what is read of a VirtualService.
type VirtualService struct {
	TypeMeta
	Metadata Meta               `json:"metadata"`
	Spec     VirtualServiceSpec `json:"spec"`
}

// VirtualServiceSpec has the routes of some hosts at some gateways.
type VirtualServiceSpec struct {
	Hosts    []string    `json:"hosts,omitempty"`
	Gateways []string    `json:"gateways,omitempty"`
	HTTP     []HTTPRoute `json:"http,omitempty"`
	TLS      []L4Route   `json:"tls,omitempty"`
	TCP      []L4Route   `json:"tcp,omitempty"`
}

// L4Route is a route of a TLS or TCP server.
type L4Route struct {
	Match []L4Match `json:"match,omitempty"`
	Route []Route   `json:"route,omitempty"`
}

// L4Match says which connections take a route.
type L4Match struct {
	SNIHosts []string `json:"sniHosts,omitempty"`
	Port     uint32   `json:"port,omitempty"`
	Gateways []string `json:"gateways,omitempty"`
}

// HTTPRoute is a route of an HTTP server.
type HTTPRoute struct {
	Route    []Route       `json:"route,omitempty"`
	Copy     *Destination  `json:"mirror,omitempty"`
	Copies   []Route       `json:"mirrors,omitempty"`
	Delegate *DelegateName `json:"delegate,omitempty"`
}

// DelegateName names the VirtualService with the routes.
type DelegateName struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// Route leads to a destination.
type Route struct {
	Destination Destination `json:"destination"`
}

// Destination is the service that a route leads to.
type Destination struct {
	Host string `json:"host"`
}

// EnvoyFilter is what is read and written of an EnvoyFilter.
type EnvoyFilter struct {
	TypeMeta
	Metadata Meta            `json:"metadata"`
	Spec     EnvoyFilterSpec `json:"spec"`
}

// EnvoyFilterSpec patches what Istio makes for some workloads.
type EnvoyFilterSpec struct {
	WorkloadSelector *WorkloadSelector `json:"workloadSelector,omitempty"`
	TargetRefs       []TargetRef       `json:"targetRefs,omitempty"`
	ConfigPatches    []ConfigPatch     `json:"configPatches,omitempty"`
	Priority         int32             `json:"priority,omitempty"`
}

// WorkloadSelector selects the workloads of an EnvoyFilter.
type WorkloadSelector struct {
	Labels map[string]string `json:"labels,omitempty"`
}

// TargetRef names a gateway of the Gateway API.
type TargetRef struct {
	Kind string `json:"kind,omitempty"`
	Name string `json:"name,omitempty"`
}

// ConfigPatch is one patch.
type ConfigPatch struct {
	ApplyTo string     `json:"applyTo,omitempty"`
	Match   PatchMatch `json:"match"`
	Patch   Patch      `json:"patch"`

	chains  []addedChain // see Prepare
	cluster *addedCluster
}

// PatchMatch says what is patched.
type PatchMatch struct {
	Context            string          `json:"context,omitempty"`
	Proxy              json.RawMessage `json:"proxy,omitempty"`
	Listener           *ListenerMatch  `json:"listener,omitempty"`
	RouteConfiguration *RouteMatch     `json:"routeConfiguration,omitempty"`
}

// RouteMatch says which routes are patched.
type RouteMatch struct {
	Name       string          `json:"name,omitempty"`
	PortNumber uint32          `json:"portNumber,omitempty"`
	PortName   string          `json:"portName,omitempty"`
	Gateway    string          `json:"gateway,omitempty"`
	Vhost      json.RawMessage `json:"vhost,omitempty"`
}

// ListenerMatch says which listeners are patched.
type ListenerMatch struct {
	Name        string      `json:"name,omitempty"`
	PortNumber  uint32      `json:"portNumber,omitempty"`
	FilterChain *ChainMatch `json:"filterChain,omitempty"`
}

// ChainMatch says which filter chains of a listener are patched.
type ChainMatch struct {
	Name                 string       `json:"name,omitempty"`
	SNI                  string       `json:"sni,omitempty"`
	TransportProtocol    string       `json:"transportProtocol,omitempty"`
	ApplicationProtocols string       `json:"applicationProtocols,omitempty"`
	DestinationPort      uint32       `json:"destinationPort,omitempty"`
	Filter               *FilterMatch `json:"filter,omitempty"`
}

// FilterMatch names the filter beside which another is put.
type FilterMatch struct {
	Name      string       `json:"name,omitempty"`
	SubFilter *FilterMatch `json:"subFilter,omitempty"`
}

// Patch is what is done.
type Patch struct {
	Operation   string          `json:"operation,omitempty"`
	FilterClass string          `json:"filterClass,omitempty"`
	Value       json.RawMessage `json:"value,omitempty"`
}

// AuthorizationPolicy is what is read and written of an AuthorizationPolicy.
type AuthorizationPolicy struct {
	TypeMeta
	Metadata Meta      `json:"metadata"`
	Spec     AuthzSpec `json:"spec"`
}

// AuthzSpec has the rules of some workloads.
type AuthzSpec struct {
	Selector   *Selector   `json:"selector,omitempty"`
	TargetRef  *TargetRef  `json:"targetRef,omitempty"`
	TargetRefs []TargetRef `json:"targetRefs,omitempty"`
	Action     string      `json:"action,omitempty"` // empty: ALLOW
	Provider   *Provider   `json:"provider,omitempty"`
	Rules      []AuthzRule `json:"rules,omitempty"`
}

// Selector selects the workloads of an AuthorizationPolicy.
type Selector struct {
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// Provider names who is asked, as the mesh's configuration calls it.
type Provider struct {
	Name string `json:"name"`
}

// AuthzRule matches if one of From, one of To and all of When do.
type AuthzRule struct {
	From []AuthzFrom `json:"from,omitempty"`
	To   []AuthzTo   `json:"to,omitempty"`
	When []AuthzWhen `json:"when,omitempty"`
}

// AuthzFrom has a source.
type AuthzFrom struct {
	Source AuthzSource `json:"source"`
}

// AuthzSource is where a connection comes from.
type AuthzSource struct {
	RemoteIPBlocks       []string `json:"remoteIpBlocks,omitempty"`
	NotRemoteIPBlocks    []string `json:"notRemoteIpBlocks,omitempty"`
	IPBlocks             []string `json:"ipBlocks,omitempty"`
	NotIPBlocks          []string `json:"notIpBlocks,omitempty"`
	Principals           []string `json:"principals,omitempty"`
	NotPrincipals        []string `json:"notPrincipals,omitempty"`
	RequestPrincipals    []string `json:"requestPrincipals,omitempty"`
	NotRequestPrincipals []string `json:"notRequestPrincipals,omitempty"`
	Namespaces           []string `json:"namespaces,omitempty"`
	NotNamespaces        []string `json:"notNamespaces,omitempty"`
	ServiceAccounts      []string `json:"serviceAccounts,omitempty"`
	NotServiceAccounts   []string `json:"notServiceAccounts,omitempty"`
	TrustDomains         []string `json:"trustDomains,omitempty"`
	NotTrustDomains      []string `json:"notTrustDomains,omitempty"`
}

// AuthzTo has an operation.
type AuthzTo struct {
	Operation AuthzOperation `json:"operation"`
}

// AuthzOperation is what is asked for.
type AuthzOperation struct {
	Ports      []string `json:"ports,omitempty"`
	NotPorts   []string `json:"notPorts,omitempty"`
	Hosts      []string `json:"hosts,omitempty"`
	NotHosts   []string `json:"notHosts,omitempty"`
	Methods    []string `json:"methods,omitempty"`
	NotMethods []string `json:"notMethods,omitempty"`
	Paths      []string `json:"paths,omitempty"`
	NotPaths   []string `json:"notPaths,omitempty"`
}

// AuthzWhen is a condition.
type AuthzWhen struct {
	Key       string   `json:"key"`
	Values    []string `json:"values,omitempty"`
	NotValues []string `json:"notValues,omitempty"`
}

// Service is what is read of a Service.
type Service struct {
	TypeMeta
	Metadata Meta        `json:"metadata"`
	Spec     ServiceSpec `json:"spec"`
}

// ServiceSpec has the ports of some pods.
type ServiceSpec struct {
	ExternalTrafficPolicy string `json:"externalTrafficPolicy,omitempty"`

	Type     string            `json:"type,omitempty"`
	Selector map[string]string `json:"selector,omitempty"`
	Ports    []ServicePort     `json:"ports,omitempty"`

	ExternalIPs []string `json:"externalIPs,omitempty"`
}

// ServicePort is one port of a Service. TargetPort is a number, or the name of a container's port.
type ServicePort struct {
	Name       string          `json:"name,omitempty"`
	Port       uint32          `json:"port"`
	TargetPort json.RawMessage `json:"targetPort,omitempty"`
	NodePort   uint32          `json:"nodePort,omitempty"`
}

// ConfigMap carries the data of ext_authz.
type ConfigMap struct {
	TypeMeta
	Metadata Meta              `json:"metadata"`
	Data     map[string]string `json:"data,omitempty"`
}
