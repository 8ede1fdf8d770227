// SPDX-License-Identifier: Apache-2.0

// Package limit holds the bounds that several packages share, each with its reason.
// The bounds and timings of one package alone stand in its limits.go. It does not
// enforce anything.
package limit

import "time"

// Sizes in bytes.
const (
	// ControlFrame bounds a frame on the control stream: a Hello with a
	// thousand ranges needs about 32 KiB.
	ControlFrame = 64 << 10
	// DialFrame bounds a dial request or reply: host names have at most 253
	// characters, a reason is a sentence or two.
	DialFrame = 8 << 10
	// RequestHeader bounds the header of an HTTP CONNECT; kube-apiserver sends about 100.
	RequestHeader = 16 << 10
	// AnswerPart is the least that a caller of an HTTP port must take in AnswerWait.
	AnswerPart = 64 << 10
	// AdminBody bounds a request body of the admin API.
	AdminBody = 64 << 10
	// JoinBody bounds an enrolment request: a P-256 CSR in PEM has under 1 KiB.
	JoinBody = 16 << 10
	// KeyFile bounds the files of keys, secrets, credentials and versions.
	KeyFile = 4 << 10
	// PrivateFile bounds a file with a key or an identity, with a few certificates beside it.
	PrivateFile = 1 << 20
	// ConfigFile bounds a configuration file.
	ConfigFile = 4 << 20
	// PolicyList bounds a file of ranges: a million IPv6 ones have 40 MiB at most.
	PolicyList = 64 << 20
	// CopyBuffer is the unit of a copy between a socket and a stream: below 32
	// KiB system calls dominate, above it nothing is gained.
	CopyBuffer = 32 << 10
	// WaitBuffer is what a copy holds while it waits for a source that cannot be
	// asked whether it has bytes: more than people type and screens answer, and
	// little enough for thousands of idle streams.
	WaitBuffer = 2 << 10
	// Discard is what a stream reads and throws away after the far side has
	// stopped taking bytes, so that what that side still said can arrive: plenty
	// for the control frames of a reader (SPDY, HTTP/2), little for an upload.
	Discard = 1 << 20
	// SocketPath is sizeof(sun_path) on Linux, with its final NUL (unix(7)).
	SocketPath = 108
	// AuthorityLength bounds a host:port in a CONNECT or dial: 253 characters
	// of name, brackets, colon, port.
	AuthorityLength = 262
	// FaultText bounds each text of a fault that a peer may send us.
	FaultText = 1 << 10
	// ClusterUnread bounds the bytes of one cluster that came to the hub and that
	// no caller has read yet: 1,024 callers who do not read at all may leave a
	// first window of 256 KiB each, which is more than a kube-apiserver stalls in
	// a bad hour, and four such clusters fit into a hub of 2 GiB.
	ClusterUnread = 256 << 20
	// AgentUnread is the same for an agent and its targets: a quarter of the
	// memory that a printed Deployment allows it.
	AgentUnread = 128 << 20
	// RateLeast is the lowest rate of bytes that may be configured: one chunk of a copy
	// is paid for within a second, while nobody else waits.
	RateLeast = 64 << 10
	// StreamCost is the same for an idle stream with its caller's connection: the
	// stream and three goroutines.
	StreamCost = 16 << 10
	// CallerCost is what a caller's connection without a stream may take: buffers of a
	// frame that is not whole, and answers that it does not read.
	CallerCost = 64 << 10
	// SessionSecret is the length of the secret that ties further connections to
	// a session: it cannot be guessed, and it is checked beside a certificate.
	SessionSecret = 16
	// KonnectivityPacket bounds a packet that we take, as gRPC does by default and with
	// it the reference. Its client makes one DATA of each Write, which may be a body.
	KonnectivityPacket = 4 << 20
	// KonnectivityWindow bounds what a gRPC stream holds that was not taken yet,
	// but for a packet that has begun: as much as a stream of a session begins with.
	// Left to gRPC, it grows to 16 MiB for every stream of a fast caller.
	// It is what a cluster is charged for an upload that its target does not take.
	KonnectivityWindow = 256 << 10
)

// Counts.
const (
	// StreamsPerSession bounds the live streams of one agent session.
	StreamsPerSession = 10_000
	// AgentStreams bounds the streams that an agent may open towards a hub:
	// the control stream, and one more while it is being replaced.
	AgentStreams = 2
	// Connections bounds the connections of one session: a lane for what is
	// interactive and some for bulk; more gained nothing on any machine measured.
	Connections = 4
	// SessionsPerCluster bounds the live agents of one cluster.
	SessionsPerCluster = 256
	// Unauthenticated bounds the unauthenticated connections on a hub's main port, below a
	// small machine's 1,024 descriptors.
	Unauthenticated = 512
	// SessionsComing bounds the connections of one agent's identity that have said
	// Hello and are no session yet: that takes them a round trip.
	SessionsComing = 32
	// SessionsPerAgent bounds the live sessions of one identity: one, a second
	// while a renewed certificate takes over, and older ones with long streams.
	SessionsPerAgent = 16
	// PendingDials bounds the dials under way per cluster, so that callers who
	// retry against a dead target cannot pile up; and the streams of a konnectivity
	// socket that have asked for nothing yet.
	PendingDials = 2_000
	// ConnectConnections bounds the connections of one CONNECT frontend, and the
	// connections and the streams of one konnectivity socket.
	ConnectConnections = 10_000
	// ResolvedAddresses bounds how many addresses of a name are tried.
	ResolvedAddresses = 8
)

// The memory of a hub, in percent of its limit.
const (
	// MemoryShort is from where the largest consumer gets no more: a tenth of the
	// limit before any stream is cut.
	MemoryShort = 80
	// MemoryOver is from where its streams are cut: the collector works without a
	// pause when all of the limit is in use.
	MemoryOver = 90
	// MemoryCalm is where the largest consumer is served again: below MemoryShort, or
	// it would go to and fro.
	MemoryCalm = 75
	// MemoryCut is to where streams are cut: below MemoryCalm, so that those who remain
	// are served.
	MemoryCut = 65
)

// Times.
const (
	// MemoryLook is how often the memory is looked at: at 1 GiB a second, which is
	// more than two cores receive, 100 MiB come in between.
	MemoryLook = 100 * time.Millisecond
	// MemoryAgain is the least time between two cuts, so that the collector can show
	// what the first one gave.
	MemoryAgain = time.Second
	// Handshake bounds a TLS handshake with its ALPN.
	Handshake = 10 * time.Second
	// SilentGrace is how long an unauthenticated connection of a full hub keeps its place although
	// it is silent: a machine to which five thousand agents reconnect is slow.
	SilentGrace = time.Second
	// SilentLeast is the same while most of them never authenticate: a long round trip.
	// It is also how long a connection of a full admin or health port may be silent.
	SilentLeast = 100 * time.Millisecond
	// Hello bounds the exchange of Hello and Welcome.
	Hello = 10 * time.Second
	// RequestHeaderTime bounds the arrival of a request header (slowloris).
	RequestHeaderTime = 10 * time.Second
	// AnswerWait is how long a caller of an HTTP port may leave AnswerPart bytes of an
	// answer unread before its connection is ended.
	AnswerWait = time.Minute
	// SocketWait is how long a command waits for an admin socket that is not there yet,
	// and SocketPoll how often it looks: what it asks may have been started just before.
	SocketWait = 5 * time.Second
	SocketPoll = 50 * time.Millisecond
	// ReplyWrite bounds the writing of a refusal or reply to a client that does not read.
	ReplyWrite = 10 * time.Second
	// Dial bounds a dial end to end when the caller names no deadline:
	// kube-apiserver itself waits 30 s with gRPC and forever with CONNECT.
	Dial = 30 * time.Second
	// DialTarget bounds the agent's own connect within a dial.
	DialTarget = 20 * time.Second
	// HappyEyeballs staggers the attempts on several addresses (RFC 8305 section 8).
	HappyEyeballs = 250 * time.Millisecond
	// Settle is how long a target that speaks first is held back for a
	// konnectivity caller that has not spoken: the reference's client needs some
	// microseconds, on a busy machine some milliseconds.
	Settle = 25 * time.Millisecond
	// PingLive is the ping interval where streams or dials are live.
	PingLive = time.Second
	// DeadLive is the silence after which a live session counts as dead: what
	// is promised is 3 s, the rest is for timers and scheduling.
	DeadLive = 2800 * time.Millisecond
	// PingIdle is the ping interval of an idle session; it also keeps NAT
	// entries alive (RFC 5382 asks for 124 minutes, cheap routers give 30 s to 60 s).
	PingIdle = 10 * time.Second
	// DeadIdle is the silence after which an idle session counts as dead, of
	// the 30 s that are promised.
	DeadIdle = 29 * time.Second
	// ControlAgain is the least time between two control streams of a session,
	// so that a peer that breaks them in a loop costs little. It is well below
	// DeadLive: pings go on in time.
	ControlAgain = time.Second
	// Silent is the silence after which a dial pings the session first.
	Silent = 1500 * time.Millisecond
	// PingWait is how long a dial waits for that ping before it fails over.
	PingWait = time.Second
	// BackoffFirst and BackoffMost bound the wait between two tries to reach the hub.
	BackoffFirst = 200 * time.Millisecond
	// BackoffMost is the cap of the wait.
	BackoffMost = 15 * time.Second
	// BackoffReset is how long a session must live before the backoff starts anew.
	BackoffReset = 10 * time.Second
	// StreamIdle ends a stream on which no byte moved: a day, so that a quiet
	// watch or exec survives a night.
	StreamIdle = 24 * time.Hour
	// DatagramIdle ends a flow of datagrams on which none moved: what RFC 4787 section 4.3 has for a UDP mapping is
	// two minutes, and DNS needs seconds.
	DatagramIdle = 2 * time.Minute
	// HalfClosedIdle ends a stream that one side has finished and on which
	// nothing moves: the peer may be gone for good without a trace.
	HalfClosedIdle = 15 * time.Minute
	// Linger is how long a peer may take to read and finish after the other
	// side has closed: tcp_fin_timeout's default (tcp(7)).
	Linger = time.Minute
	// TokenTTL is the life of a join token when none is asked for.
	TokenTTL = 15 * time.Minute
	// TokenTTLMost bounds the life that may be asked for.
	TokenTTLMost = 30 * 24 * time.Hour
	// AgentCertificate is the life of an agent's certificate.
	AgentCertificate = 24 * time.Hour
	// ClientCertificate is the life of a CONNECT client's certificate:
	// kube-apiserver loads it once and never again.
	ClientCertificate = 365 * 24 * time.Hour
	// HubCertificate is the life of the hub's own certificate, made anew in memory.
	HubCertificate = 7 * 24 * time.Hour
	// Authority is the life of the hub's CA.
	Authority = 10 * 365 * 24 * time.Hour
	// ClockTolerance is how far a certificate's begin is set back, and the
	// difference of clocks that is not worth a warning.
	ClockTolerance = 5 * time.Minute
	// ExpiryWarning is when status begins to warn of a client certificate's end.
	ExpiryWarning = 30 * 24 * time.Hour
	// Drain is how long a process waits for its streams after SIGTERM: less
	// than the 30 s that a kubelet grants.
	Drain = 25 * time.Second
	// Farewell is how long a session that ends in order waits for its peer to read why.
	Farewell = time.Second
	// Shutdown bounds the stop of one task.
	Shutdown = 5 * time.Second
	// AuditRetry is the wait after records could not be written.
	AuditRetry = time.Second
	// AuditTold is the least time between two lines of the log about lost records.
	AuditTold = time.Minute
	// LogTold is how long lines of the log are counted before a sum tells of those that
	// were left out.
	LogTold = time.Minute
	// CollectorTimeout bounds one request to a collector: OTLP's own default.
	CollectorTimeout = 10 * time.Second
	// ConfigDebounce collects the several events of one file replacement.
	ConfigDebounce = 200 * time.Millisecond
	// OwnAddresses is how old the list of the machine's addresses may be by which the
	// hub knows its own listeners: asking the kernel costs what a hundred verdicts cost.
	OwnAddresses = 5 * time.Second
	// PolicyFolders is how often a folder is looked for that could not be watched:
	// its own folder was missing, or watches were.
	PolicyFolders = 2 * time.Second
)
