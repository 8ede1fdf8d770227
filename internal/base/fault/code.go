// SPDX-License-Identifier: Apache-2.0

package fault

// The codes. Each has a row in Table and a section in docs/reference/faults.md.
const (
	CodeInternal     Code = "internal"
	CodeUsage        Code = "usage"
	CodeConfig       Code = "config_invalid"
	CodeStateAccess  Code = "state_unwritable"
	CodeStateVersion Code = "state_newer"
	CodeStateBusy    Code = "state_busy"
	CodeStateCorrupt Code = "state_corrupt"
	CodeAddressBusy  Code = "address_in_use"
	CodeSocketBusy   Code = "socket_in_use"
	CodeSocketPath   Code = "socket_path_invalid"
	CodeHubAway      Code = "hub_unreachable"
	CodeOutput       Code = "output_unwritable"
	CodeInterrupted  Code = "interrupted"
	CodeDemo         Code = "demo_failed"
	CodeAudit        Code = "audit_unavailable"

	CodeJoinLine      Code = "join_line_invalid"
	CodeTokenUnknown  Code = "token_unknown"
	CodeTokenExpired  Code = "token_expired"
	CodeTokenUsed     Code = "token_used"
	CodeCAMismatch    Code = "ca_mismatch"
	CodeClockSkew     Code = "clock_skew"
	CodeCertExpired   Code = "certificate_expired"
	CodeCertInvalid   Code = "certificate_invalid"
	CodeCertRevoked   Code = "certificate_revoked"
	CodeUnauthorized  Code = "not_authorized"
	CodeNodeTaken     Code = "node_name_taken"
	CodeNotFound      Code = "not_found"
	CodeVersion       Code = "version_unsupported"
	CodeFrameInvalid  Code = "frame_invalid"
	CodeFrameTooLarge Code = "frame_too_large"

	CodeClusterUnknown Code = "cluster_unknown"
	CodeClusterInUse   Code = "cluster_in_use"
	CodeBackendUnknown Code = "backend_unknown"
	CodeBackendInUse   Code = "backend_in_use"
	CodeBackendAway    Code = "backend_unreachable"
	CodeWireGuardOff   Code = "wireguard_off"
	CodeWireGuardTaken Code = "wireguard_taken"
	CodeNoAgent        Code = "no_agent"
	CodeDraining       Code = "draining"
	CodeSessionLost    Code = "session_lost"
	CodeLimit          Code = "limit_reached"
	CodeRequest        Code = "request_malformed"
	CodeMethod         Code = "method_not_allowed"
	CodeHeaderTooLarge Code = "header_too_large"
	CodeEarlyData      Code = "early_data"

	CodePolicyDenied    Code = "policy_denied"
	CodeDialRefused     Code = "dial_refused"
	CodeDialTimeout     Code = "dial_timeout"
	CodeDialDNS         Code = "dial_dns"
	CodeDialUnreachable Code = "dial_unreachable"
	CodeDialCanceled    Code = "dial_canceled"

	CodeNotTLS      Code = "not_tls"
	CodeNameMissing Code = "name_missing"
	CodeNameUnknown Code = "name_unknown"
	CodeProxyHeader Code = "proxy_header"

	CodeAccessList Code = "access_list_invalid"
	CodeLockout    Code = "access_list_lockout"

	CodeStreamReset Code = "stream_reset"
	CodeStreamIdle  Code = "stream_idle"

	CodeSecret       Code = "secret_invalid"
	CodeEntryInvalid Code = "entry_invalid"
	CodeEntryStale   Code = "entry_stale"
	CodeWatchLost    Code = "watch_lost"
	CodeStoreAway    Code = "store_unavailable"
	CodeStoreForeign Code = "store_foreign"
	CodeServiceAway  Code = "discovery_unreachable"
	CodeMemberShared Code = "member_key_shared"
	CodeAnnotation   Code = "annotation_invalid"
	CodeKubeAway     Code = "kubernetes_unreachable"
	CodeKubeDenied   Code = "kubernetes_denied"

	CodeClash       Code = "mesh_clash"
	CodeKernelClash Code = "kernel_clash"
	CodeUnsupported Code = "kernel_unsupported"
	CodeKernel      Code = "mesh_kernel"
	CodeSelf        Code = "mesh_self"
	CodeRange       Code = "mesh_range"
	CodeOverlay     Code = "mesh_overlay"
	CodeMeshCluster Code = "mesh_cluster"
	CodeEngine      Code = "mesh_engine"
	CodeMeshAway    Code = "mesh_unreachable"
	CodeEdgeAway    Code = "edge_unreachable"
	CodeRouteAway   Code = "route_unreachable"
	CodeVPNAway     Code = "vpn_unreachable"
	CodeVPNDown     Code = "vpn_down"
	CodeLinkRefused Code = "link_refused"
	CodeLinkPending Code = "link_pending"
)

// Entry is one row of the table of codes.
type Entry struct {
	Code    Code
	Class   Class
	Meaning string
}

// Table lists every code with its class and its meaning, in the order of the reference page.
func Table() []Entry {
	return []Entry{
		{CodeInternal, Internal, "A defect of Tombolo: please report it with the log."},
		{CodeUsage, Invalid, "The command line is wrong."},
		{CodeConfig, Invalid, "The configuration is wrong; each problem is listed with file:line:column."},
		{CodeStateAccess, Conflict, "The state directory cannot be created, read or written, or others may write it."},
		{CodeStateVersion, Conflict, "The state was written by a newer version of Tombolo."},
		{CodeStateBusy, Conflict, "Another process holds the state directory."},
		{CodeStateCorrupt, Conflict, "The state cannot be read: it is damaged or not ours."},
		{CodeAddressBusy, Conflict, "The listen address is in use by another process."},
		{CodeSocketBusy, Conflict, "A live process serves the unix socket."},
		{CodeSocketPath, Invalid, "The path of a unix socket is too long, or exists and is not a socket."},
		{CodeHubAway, Unavailable, "The hub cannot be reached."},
		{CodeOutput, Conflict, "Stdout, or the file that a command should create, cannot be written."},
		{CodeInterrupted, Conflict, "A signal ended the command early."},
		{CodeDemo, Conflict, "A step of 'tombolo demo' failed."},
		{CodeAudit, Unavailable, "Audit records cannot be written, and without them nothing may be dialled."},
		{CodeJoinLine, Invalid, "The join line is damaged."},
		{CodeTokenUnknown, Unauthenticated, "The hub never issued this token, or it was revoked."},
		{CodeTokenExpired, Unauthenticated, "The token has expired."},
		{CodeTokenUsed, Unauthenticated, "The token was used as often as it allows."},
		{CodeCAMismatch, Unauthenticated, "The other side's certificate does not come from the pinned CA."},
		{CodeClockSkew, Unauthenticated, "The clocks of the two sides differ too much for their certificates."},
		{CodeCertExpired, Unauthenticated, "The certificate has expired and the grace period for renewal is over."},
		{CodeCertInvalid, Unauthenticated, "A certificate is missing, foreign or carries no usable identity."},
		{CodeCertRevoked, Unauthenticated, "The certificate was revoked."},
		{CodeUnauthorized, Denied, "The identity is known but may not do this."},
		{CodeNodeTaken, Conflict, "Another node, with another key, holds the name, and its certificate is still valid."},
		{CodeNotFound, NotFound, "The named object does not exist."},
		{CodeVersion, Invalid, "The two sides share no version of the protocol."},
		{CodeFrameInvalid, Invalid, "A frame or packet of the peer cannot be read."},
		{CodeFrameTooLarge, Invalid, "A frame or packet of the peer is larger than allowed."},
		{CodeClusterUnknown, NotFound, "No cluster of that name is registered at the hub."},
		{CodeClusterInUse, Conflict, "A cluster to remove is in use, or a cluster to register was removed a moment ago."},
		{CodeBackendUnknown, NotFound, "The hub's configuration has no backend of that name."},
		{CodeBackendInUse, Conflict, "A backend is missing in the configuration, and clusters or streams use it; " +
			"or a cluster cannot move to a backend that would not carry its dials."},
		{CodeBackendAway, Unavailable, "The proxy that carries dials into the cluster cannot be reached, " +
			"or its answer is unusable."},
		{CodeWireGuardOff, Conflict, "WireGuard is not configured at the hub, or is off for the cluster."},
		{CodeWireGuardTaken, Conflict, "A cluster cannot be imported, or a range not be changed: an address or a key is " +
			"taken, or outside of the range, or the cluster is there already."},
		{CodeNoAgent, Unavailable, "The cluster has no live agent."},
		{CodeDraining, Unavailable, "The hub or the last agent is shutting down and takes no new streams."},
		{CodeSessionLost, Unavailable, "The session to the agent ended."},
		{CodeLimit, Exhausted, "A bound was reached; the text names it."},
		{CodeRequest, Invalid, "The request is malformed."},
		{CodeMethod, Invalid, "The method is not served here."},
		{CodeHeaderTooLarge, Invalid, "The request header is larger than allowed."},
		{CodeEarlyData, Invalid, "The client sent bytes before the answer to its CONNECT."},
		{CodePolicyDenied, Denied, "The hub's policy or the agent's list denies the destination, or no rule allows it."},
		{CodeDialRefused, Upstream, "The target refused the connection."},
		{CodeDialTimeout, Timeout, "The target did not answer in time."},
		{CodeDialDNS, Upstream, "The name did not resolve on the agent's side."},
		{CodeDialUnreachable, Upstream, "The agent has no route to the target."},
		{CodeDialCanceled, Unavailable, "The caller gave up before the dial ended."},
		{CodeNotTLS, Invalid, "The connection does not begin with TLS."},
		{CodeNameMissing, Invalid, "The client names no server, so that the edge cannot know which cluster it wants."},
		{CodeNameUnknown, NotFound, "No tenant of the edge has this name or destination."},
		{CodeProxyHeader, Unauthenticated, "A PROXY protocol header is missing, malformed, or comes from a source " +
			"that may not send one."},
		{CodeAccessList, Invalid, "A Gardener access list, or an object that it depends on, cannot be read; " +
			"the text names the field."},
		{CodeLockout, Conflict, "An access list locks out its author, or the cluster's own nodes."},
		{CodeStreamReset, Unavailable, "The other side of the stream reset it."},
		{CodeStreamIdle, Timeout, "No byte moved for the idle limit."},

		{CodeSecret, Invalid, "The cluster's secret is not 32 bytes in base64 or belongs to another cluster, " +
			"or others can access a file that holds a secret, key or password."},
		{CodeEntryInvalid, Invalid, "A member's entry is damaged, signed by another key, " +
			"or not sealed with the cluster's secret."},
		{CodeEntryStale, Conflict, "A newer entry of the member is already known."},
		{CodeWatchLost, Unavailable, "A watcher fell too far behind, and has to list everything again."},
		{CodeStoreAway, Unavailable, "The discovery service cannot reach its store: " +
			"it serves what it knows and accepts no changes."},
		{CodeStoreForeign, Conflict, "The prefix in the store, or the file, holds data of another program."},
		{CodeServiceAway, Unavailable, "No discovery service can be reached."},
		{CodeMemberShared, Conflict, "Another machine announces itself with this member's key."},
		{CodeAnnotation, Invalid, "The annotations of a Kubernetes Node, or a Member object, cannot be read; " +
			"each problem is listed with its field."},
		{CodeKubeAway, Unavailable, "The Kubernetes API cannot be reached, or its answer is unusable."},
		{CodeKubeDenied, Denied, "The Kubernetes API does not allow this node a read or a write."},

		{CodeClash, Conflict, "Another program on this machine uses a mark, table, rule or link of the mesh."},
		{CodeKernelClash, Conflict, "Another program on this machine uses a table, rule or link of 'tombolo route' " +
			"or 'tombolo vpn'."},
		{CodeUnsupported, Conflict, "This machine lacks what the mesh, routed mode or a VPN needs: " +
			"TUN, nftables, kernel WireGuard where it is configured, or the permission."},
		{CodeKernel, Conflict, "The kernel refuses a change, or another program keeps undoing it; the change is retried."},
		{CodeSelf, Conflict, "Another member holds this node's key, or two members hold the same one."},
		{CodeRange, Invalid, "A range cannot be routed, or belongs to another member."},
		{CodeMeshCluster, Invalid, "The cluster.id of this node gives another network than that of the other members."},
		{CodeOverlay, Conflict, "This node has left an overlay address that another member holds, and uses another one."},
		{CodeEngine, Conflict, "Another node runs IPsec and this one WireGuard, or the other way round: " +
			"they have no tunnel."},
		{CodeMeshAway, Unavailable, "No 'tombolo mesh' answers at its admin socket, or it is not ready yet."},
		{CodeEdgeAway, Unavailable, "No 'tombolo edge' answers at its admin socket."},
		{CodeRouteAway, Unavailable, "No 'tombolo route' answers at its admin socket."},
		{CodeVPNAway, Unavailable, "No 'tombolo vpn' answers at its admin socket."},
		{CodeVPNDown, Unavailable, "No packets pass through the tunnel."},
		{CodeLinkRefused, Conflict, "The host cluster refuses a linked cluster, or something else is in its way."},
		{CodeLinkPending, Timeout, "A linked cluster is not as far as was awaited, in the time that was given."},
	}
}
