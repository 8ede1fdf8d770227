// SPDX-License-Identifier: Apache-2.0

package house

// Exceptions lists which path may break which law, and why.
func Exceptions() []Exception {
	return []Exception{
		{"methods", "internal/stream/carrier/mux_stream.go", "type muxStream",
			"its two directions end together under one lock, and share the way " +
				"between connections; decisions are in window, activity and policy of their own"},
		{"methods", "internal/stream/carrier/mux.go", "type muxSession",
			"at the alarm: what its connections and streams share; each of these is a type of its own"},
		{"size", "internal/base/fault/code.go", "func Table", "a table: one row for each code"},
		{"interfaces", "internal/stream/carrier/carrier.go", "interface Session",
			"what a session is: the mux, its twin and the library under test have all of it"},
		{"interfaces", "internal/discovery/etcd/remote.go", "interface remote",
			"the calls of etcd that the store makes, for a fake in its tests"},
		{"locked", "internal/mesh/peering/", "", "to be renamed when its state is split"},
		{"log-lines", "internal/stream/agent/agent.go", "", "the message is one of three literals of its callers"},
		{"log-lines", "internal/stream/hub/join.go", "", "agents and nodes, each with a message of its own"},
		{"log-lines", "internal/base/confdir/", "",
			"what the files are called and what stays in force are a few literals, put together"},
		{"log-lines", "internal/mesh/step.go", "", "each message is a literal of the step that decides on the line"},
		{"log-lines", "internal/mesh/peering/send.go", "", "what was tried is one of a few literals, right below it"},
		{"metrics", "internal/mesh/topology/options.go", "tombolo_mesh",
			"the name of a table of nftables, as the issue has it"},
		{"metrics", "client/egress/egressmetrics/", "apiserver_egress_dialer_",
			"kube-apiserver's own metrics, for programs that dial as it does"},
		{"sleeps", "test/lab/", "",
			"it polls, within a bound, kernels and programs that do not report their changes"},
		{"sleeps", "test/system/standstill_test.go", "",
			"a program is stopped for longer than the liveness bound of its peer: that time is what is tested"},
		{"error-text", "internal/base/conf/conf.go", "",
			"the YAML library has the position of a syntax error only in its text; a test checks the format"},
	}
}
