// SPDX-License-Identifier: Apache-2.0

package kosmos

// Group and Version are those of the objects that this package reads.
const (
	Group      = "kosmos.io"
	apiVersion = Group + "/v1alpha1"
)

// secret stands for a value that must not be kept. It remembers that there was one.
type secret bool

// UnmarshalText forgets the text.
func (s *secret) UnmarshalText(text []byte) error {
	*s = len(text) > 0
	return nil
}

// cluster is a Cluster of Kosmos.
type cluster struct {
	Spec   clusterSpec   `json:"spec"`
	Status clusterStatus `json:"status"`
}

type clusterSpec struct {
	Kubeconfig      secret       `json:"kubeconfig"`
	Namespace       string       `json:"namespace"`
	ImageRepository string       `json:"imageRepository"`
	Link            *linkOptions `json:"clusterLinkOptions"`
	Tree            *treeOptions `json:"clusterTreeOptions"`
}

type linkOptions struct {
	Enable              *bool             `json:"enable"`
	CNI                 string            `json:"cni"`
	NetworkType         string            `json:"networkType"`
	IPFamily            string            `json:"ipFamily"`
	UseIPPool           bool              `json:"useIPPool"`
	LocalCIDRs          deviceCIDRs       `json:"localCIDRs"`
	BridgeCIDRs         deviceCIDRs       `json:"bridgeCIDRs"`
	NICNodeNames        []nicNodes        `json:"nicNodeNames"`
	DefaultNICName      string            `json:"defaultNICName"`
	AutodetectionMethod string            `json:"autodetectionMethod"`
	GlobalCIDRsMap      map[string]string `json:"globalCIDRsMap"`
	NodeElasticIPMap    map[string]string `json:"nodeElasticIPMap"`
	ClusterPodCIDRs     []string          `json:"clusterpodCIDRs"`
	UseExternal         bool              `json:"useexternalapiserver"`
}

type deviceCIDRs struct {
	IP  string `json:"ip"`
	IP6 string `json:"ip6"`
}

type nicNodes struct {
	Interface string   `json:"interfaceName"`
	Nodes     []string `json:"nodeName"`
}

type treeOptions struct {
	Enable     bool        `json:"enable"`
	LeafModels []leafModel `json:"leafModels"`
}

type leafModel struct {
	LeafNodeName string            `json:"leafNodeName"`
	Labels       map[string]string `json:"labels"`
	Taints       []leafTaint       `json:"taints"`
	NodeSelector leafSelector      `json:"nodeSelector"`
}

type leafTaint struct {
	Key       string `json:"key"`
	Value     string `json:"value"`
	Effect    string `json:"effect"`
	TimeAdded string `json:"timeAdded"`
}

type leafSelector struct {
	NodeName      string     `json:"nodeName"`
	LabelSelector leafLabels `json:"labelSelector"`
}

type leafLabels struct {
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []leafExpression  `json:"matchExpressions"`
}

type leafExpression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

type clusterStatus struct {
	Link linkStatus `json:"clusterLinkStatus"`
	Tree treeStatus `json:"clusterTreeStatus"`
}

type linkStatus struct {
	PodCIDRs     []string `json:"podCIDRs"`
	ServiceCIDRs []string `json:"serviceCIDRs"`
}

type treeStatus struct {
	LeafNodeItems []leafItem `json:"leafNodeItems"`
}

type leafItem struct {
	LeafNodeName string `json:"leafNodeName"`
}

// clusterNode is a ClusterNode of Kosmos.
type clusterNode struct {
	Spec struct {
		ClusterName   string   `json:"clusterName"`
		NodeName      string   `json:"nodeName"`
		PodCIDRs      []string `json:"podCIDRs"`
		IP            string   `json:"ip"`
		IP6           string   `json:"ip6"`
		ElasticIP     string   `json:"elasticip"`
		Roles         []string `json:"roles"`
		InterfaceName string   `json:"interfaceName"`
	} `json:"spec"`
	Status struct {
		NodeStatus string `json:"nodeStatus"`
	} `json:"status"`
}

// nodeConfig is a NodeConfig of Kosmos.
type nodeConfig struct {
	Spec struct {
		Devices         []device    `json:"devices"`
		Routes          []route     `json:"routes"`
		Iptables        []iptables  `json:"iptables"`
		FDBs            []neighbour `json:"fdbs"`
		ARPs            []neighbour `json:"arps"`
		XfrmPolicies    []policy    `json:"xfrmpolicies"`
		XfrmStates      []state     `json:"xfrmstates"`
		IPsetsAvoidMasq []ipset     `json:"ipsetsavoidmasq"`
	} `json:"spec"`
	Status struct {
		LastChangeTime string `json:"lastChangeTime"`
		LastSyncTime   string `json:"lastSyncTime"`
	} `json:"status"`
}

type device struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Addr    string `json:"addr"`
	MAC     string `json:"mac"`
	BindDev string `json:"bindDev"`
	ID      int32  `json:"id"`
	Port    int32  `json:"port"`
}

type route struct {
	CIDR string `json:"cidr"`
	Gw   string `json:"gw"`
	Dev  string `json:"dev"`
}

type iptables struct {
	Table string `json:"table"`
	Chain string `json:"chain"`
	Rule  string `json:"rule"`
}

type neighbour struct {
	IP  string `json:"ip"`
	MAC string `json:"mac"`
	Dev string `json:"dev"`
}

type policy struct {
	LeftIP   string `json:"leftip"`
	LeftNet  string `json:"leftnet"`
	RightIP  string `json:"rightip"`
	RightNet string `json:"rightnet"`
	ReqID    uint32 `json:"reqid"`
	Dir      int    `json:"dir"`
}

type state struct {
	LeftIP  string `json:"leftip"`
	RightIP string `json:"rightip"`
	ReqID   uint32 `json:"reqid"`
	SPI     uint32 `json:"spi"`
	PSK     secret `json:"PSK"`
}

type ipset struct {
	CIDR string `json:"cidr"`
	Name string `json:"name"`
}
