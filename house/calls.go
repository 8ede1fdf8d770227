// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// callRule restricts functions and variables of a package to the folders that may use
// them. It applies to product code.
type callRule struct {
	Import string
	Names  []string // empty: any
	Places []string // folders or files
	Why    string
}

func callRules() []callRule {
	const oneDecide = "who may reach what is decided by policy.Decide, " +
		"where a hop decides or explains what it would decide (docs/decisions/0014)"
	return []callRule{
		{"github.com/tombolo-io/tombolo/internal/access/policy", []string{"Decide"}, []string{
			"internal/access/authz", "internal/stream/hub/explain.go", // the hub; its explanation
			// The agent; its record of what it refused.
			"internal/stream/agent/dial.go", "internal/stream/agent/live.go", "internal/stream/agent/audit.go",
			"internal/stream/agent/ports.go", // who may connect to a port
			"internal/access/replay",         // recorded traffic
			"internal/edge/edge.go",          // the edge, while it has no policy
		}, oneDecide},
		{"net/netip", []string{"Prefix", "ParsePrefix", "MustParsePrefix", "PrefixFrom"}, []string{
			"internal/access/policy",
			"internal/access/gardener",        // ranges that a seed and a shoot have, for rules of policy
			"internal/access/istio",           // lists that policy computed, as Istio and Envoy have them
			"internal/access/audit/filter.go", // which records are shown
			// Addresses of the machine, as the kernel writes them.
			"internal/stream/hub/hub.go", "internal/access/authz", "internal/stream/agent/own.go",
			// Which cluster an address is of, and what is written to the kernel for it: who may reach it is asked at the hub.
			"internal/route/mapping", "internal/route/plan.go", "internal/route/around.go", "internal/vpn/...",
			"internal/stream/hub/wireguard", "internal/link/accept", "internal/control/links/host/read.go", // whose ranges are
			"internal/discovery/callers.go", "internal/discovery/config.go", // proxies whose word on an address counts
			// Load balancers whose word counts, and sources that are counted: they grant no access.
			"internal/base/proxyheader/trusted.go",
			"internal/edge/counts.go", "internal/edge/edge.go", "internal/edge/refusals.go",
			"internal/edge/visit.go",
			// Ranges that a member announces or a cluster has: read, kept and compared as a whole, and they grant no access.
			"internal/discovery/seal", "internal/link/...",
			"internal/discovery/roster/member.go", "internal/discovery/roster/parse.go", "internal/discovery/roster/stated.go",
			// Routes of its own namespaces; addresses in the mesh, computed from an id; what a konnectivity agent is near to.
			"internal/demo/network", "internal/base/member", "internal/stream/konnectivity/choose.go",
			// Addresses of the machine and special ranges: announced, and they grant no access.
			"internal/mesh/nat", "internal/mesh/kernel/machine",
			"internal/mesh/endpoint", // ranges of the mesh, which are neither announced nor probed
			"internal/mesh/meshconf", // ranges that the operator configures: topology decides about them
			// Ranges of peers, as topology planned them: passed on and shown.
			"internal/mesh", "internal/mesh/tunnel", "internal/mesh/peering", "cmd/tombolo/meshverbs.go",
			// What is behind which range, and the kernel's form of it: policy lowers its verdicts to it.
			"internal/base/plan", "internal/mesh/topology", "internal/mesh/kernel/...", "internal/mesh/ipsectunnel",
		}, oneDecide},
		{"net", []string{"ParseCIDR", "IPNet", "CIDRMask"}, []string{"internal/mesh/kernel/...", "internal/demo/network"},
			oneDecide},
		{"context", []string{"Background", "TODO"}, []string{"cmd/..."},
			"a context starts where the program starts; take the caller's"},
		{"os", []string{"Exit"}, []string{"cmd/tombolo/main.go", "cmd/tombolo-controller/main.go"},
			"an exit skips every defer: return the fault"},
		{"log", []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"}, nil,
			"an exit skips every defer: return the fault"},
		{"syscall", []string{"Exit"}, nil, "an exit skips every defer: return the fault"},
		{"runtime", []string{"Goexit", "SetFinalizer"}, nil, "the owner of an object ends it, not the runtime"},
		{"time", []string{"Sleep"}, nil,
			"a sleep cannot be cancelled: wait on a timer and the context"},
		{"time", []string{"Tick"}, nil, "its ticker cannot be stopped"},
		{"net/http", []string{"Get", "Head", "Post", "PostForm", "DefaultClient", "DefaultTransport"}, nil,
			"the default client has no timeout and is shared by the process"},
		{"net/http", []string{"Handle", "HandleFunc", "DefaultServeMux", "ListenAndServe", "ListenAndServeTLS", "Serve"}, nil,
			"any import can add to the default mux: build a server with its own mux and limits"},
		{"log/slog", []string{"Default", "SetDefault", "Debug", "DebugContext", "Info", "InfoContext", "Warn",
			"WarnContext", "Error", "ErrorContext", "Log", "LogAttrs"}, nil,
			"a logger comes by constructor"},
		{"log/slog", []string{"NewTextHandler", "NewJSONHandler"}, []string{"internal/base/telemetry"},
			"peers can cause lines without end: the handlers of telemetry.Logger bound them"},
		{"log/slog", []string{"NewLogLogger"},
			[]string{"internal/base/listener", "internal/discovery/announce", "internal/demo"},
			"its texts may be a peer's: give it telemetry.Texts"},
		{"os", []string{"Stderr"}, []string{"cmd/..."}, "output goes through the logger, which bounds it"},
		{"github.com/prometheus/client_golang/prometheus", []string{"MustRegister", "Register", "DefaultRegisterer",
			"DefaultGatherer"}, nil, "a registry comes by constructor"},
		{"github.com/prometheus/client_golang/prometheus/promhttp", []string{"Handler"}, nil,
			"it serves the default registry: use HandlerFor"},
		{"flag", []string{"Parse", "CommandLine", "String", "Bool", "Int", "Duration", "Var"}, nil,
			"flags belong to the command"},
		{"os/signal", []string{"Notify", "NotifyContext"}, []string{"cmd/..."},
			"the program receives signals, and calls the rooms"},
		{"os", []string{"Setenv", "Unsetenv", "Clearenv", "Chdir"}, nil, "the environment is shared by the process"},
		{"syscall", []string{"Umask"}, nil, "the mask is shared by the process: set modes on the file"},
		{"golang.org/x/sys/unix", []string{"Umask"}, nil, "the mask is shared by the process: set modes on the file"},
	}
}

func checkCalls(t *Tree) []Breach {
	return checkSelectors(t, (*File).Product, callRules())
}

func checkSelectors(t *Tree, keep func(*File) bool, rules []callRule) []Breach {
	var out []Breach
	for _, f := range t.Go(keep) {
		if f.Generated {
			continue
		}
		names := imports(f.AST)
		ast.Inspect(f.AST, func(n ast.Node) bool {
			pkg, name := selector(names, n)
			if pkg == "" {
				return true
			}
			for _, r := range rules {
				if r.Import != pkg || len(r.Names) > 0 && !slices.Contains(r.Names, name) {
					continue
				}
				if within(f.Dir(), r.Places) || slices.Contains(r.Places, f.Path) {
					continue
				}
				out = append(out, t.breach(f, n, "%s.%s: %s", pkg, name, r.Why))
			}
			return true
		})
	}
	return out
}

// pureRules apply to floors 0 and 1. Package net is allowed for its types.
func pureRules() []callRule {
	const clock = "a decision takes the time as a value, so that a test can choose it"
	const io = "deciders do no I/O: take bytes and values"
	const dice = "a decision is deterministic: take the random number as a value"
	owner := []string{"internal/base/run"}
	return []callRule{
		{"net", []string{"Dial", "DialTimeout", "DialTCP", "DialUDP", "DialUnix", "DialIP", "Dialer", "Listen", "ListenTCP",
			"ListenUDP", "ListenUnix", "ListenPacket", "ListenConfig", "ListenIP", "ListenMulticastUDP", "ListenUnixgram",
			"Resolver", "DefaultResolver", "LookupAddr", "LookupHost", "LookupIP", "LookupPort", "LookupCNAME", "LookupSRV",
			"LookupTXT", "LookupMX", "LookupNS", "ResolveTCPAddr", "ResolveUDPAddr", "ResolveIPAddr", "ResolveUnixAddr",
			"Interfaces", "InterfaceAddrs", "InterfaceByName", "InterfaceByIndex", "FileConn", "FileListener"}, nil, io},
		{"time", []string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep"}, owner,
			clock},
		{"context", []string{"WithTimeout", "WithTimeoutCause"}, owner, clock},
		{"os", nil, nil, io}, {"os/exec", nil, nil, io}, {"os/signal", nil, nil, io}, {"os/user", nil, nil, io},
		{"io/fs", nil, nil, io}, {"path/filepath", []string{"Walk", "WalkDir", "Glob", "Abs", "EvalSymlinks"}, nil, io},
		{"net/http", nil, nil, io}, {"crypto/tls", nil, nil, io}, {"syscall", nil, nil, io},
		{"golang.org/x/sys/unix", nil, nil, io}, {"google.golang.org/grpc", nil, nil, io},
		{"log/slog", nil, []string{"internal/base/run", "internal/base/telemetry"}, io},
		{"math/rand/v2", nil, nil, dice}, {"math/rand", nil, nil, dice}, {"crypto/rand", nil, nil, dice},
	}
}

func checkPurity(t *Tree) []Breach {
	return checkSelectors(t, pure, pureRules())
}

// pure reports whether a file is product code on floor 0 or 1.
func pure(f *File) bool {
	p, ok := place(f.Dir())
	return ok && p.Floor <= Deciders && f.Product()
}

// goroutineOwners are the packages that may start goroutines.
func goroutineOwners() []string {
	return []string{"internal/base/run", "internal/stream/splice", "internal/stream/carrier/..."}
}

func checkGoroutines(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go((*File).Product) {
		if f.Generated || within(f.Dir(), goroutineOwners()) {
			continue
		}
		groups := waitGroups(t, f.Dir())
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				out = append(out, t.breach(f, n, "a go statement: start a function in a run.Group, which waits for it"))
			case *ast.CallExpr:
				sel, ok := n.Fun.(*ast.SelectorExpr)
				if ok && sel.Sel.Name == "Go" && groups[lastName(sel.X)] {
					out = append(out, t.breach(f, n, "sync.WaitGroup.Go: start a function in a run.Group, which waits for it"))
				}
			}
			return true
		})
	}
	return out
}

// waitGroups returns the names of fields and variables of a folder that are a sync.WaitGroup.
func waitGroups(t *Tree, dir string) map[string]bool {
	out := map[string]bool{}
	for _, f := range t.Go(func(f *File) bool { return f.Dir() == dir }) {
		names := imports(f.AST)
		is := func(e ast.Expr) bool {
			if star, ok := e.(*ast.StarExpr); ok {
				e = star.X
			}
			pkg, name := selector(names, e)
			return pkg == "sync" && name == "WaitGroup"
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			var idents []*ast.Ident
			switch n := n.(type) {
			case *ast.Field:
				if is(n.Type) {
					idents = n.Names
				}
			case *ast.ValueSpec:
				if n.Type != nil && is(n.Type) {
					idents = n.Names
				}
			}
			for _, id := range idents {
				out[id.Name] = true
			}
			return true
		})
	}
	return out
}

// lastName is the name at the end of a, a.b or a.b.c.
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func checkRecover(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go((*File).Product) {
		ast.Inspect(f.AST, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && !f.Generated {
				if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "recover" {
					out = append(out, t.breach(f, n, "recover: let a defect end the process; the next one starts clean"))
				}
			}
			return true
		})
	}
	return out
}

// textFunctions compare text; none of them may be used on an error's text.
func textFunctions() map[string][]string {
	return map[string][]string{
		"strings": {"Contains", "ContainsAny", "HasPrefix", "HasSuffix", "EqualFold", "Index", "Compare", "Count", "Cut",
			"CutPrefix", "CutSuffix", "Split", "SplitN"},
		"regexp": {"MatchString", "Match"},
		"path":   {"Match"},
	}
}

func checkErrorText(t *Tree) []Breach {
	var out []Breach
	for _, f := range t.Go((*File).Product) {
		if f.Generated {
			continue
		}
		names := imports(f.AST)
		report := func(n ast.Node) {
			out = append(out, t.breach(f, n, "matches an error's text: use errors.Is, errors.As or fault.Has"))
		}
		ast.Inspect(f.AST, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if comparesText(names, n) && slices.ContainsFunc(n.Args, isErrorText) {
					report(n)
				}
			case *ast.BinaryExpr:
				compares := n.Op == token.EQL || n.Op == token.NEQ
				if compares && (isErrorText(n.X) || isErrorText(n.Y)) {
					report(n)
				}
			case *ast.SwitchStmt:
				if n.Tag != nil && isErrorText(n.Tag) {
					report(n)
				}
			}
			return true
		})
	}
	return out
}

// comparesText reports whether a call is one of textFunctions, or a method of a
// regular expression, recognised by its name.
func comparesText(names map[string]string, call *ast.CallExpr) bool {
	pkg, name := selector(names, call.Fun)
	if slices.Contains(textFunctions()[pkg], name) {
		return true
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && pkg == "" && (strings.HasPrefix(sel.Sel.Name, "Match") || strings.HasPrefix(sel.Sel.Name, "FindString"))
}

// isErrorText finds x.Error() and fmt.Sprint(err), also within strings.ToLower
// and in a variable that was declared with it.
func isErrorText(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Obj != nil {
			decl, ok := id.Obj.Decl.(*ast.AssignStmt)
			if ok && len(decl.Rhs) == 1 && decl.Rhs[0].End() < id.Pos() && keepsText(decl.Rhs[0]) {
				found = true
			}
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		switch {
		case !ok:
			return true
		case sel.Sel.Name == "Error" && len(call.Args) == 0:
			found = true
		case strings.HasPrefix(sel.Sel.Name, "Sprint") && len(call.Args) > 0 &&
			lastName(call.Args[len(call.Args)-1]) == "err":
			found = true
		}
		return !found
	})
	return found
}

// keepsText reports whether a variable that is declared with e holds an error's
// text: err.Error() itself, or a result of package strings or fmt on it.
func keepsText(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && (sel.Sel.Name == "Error" || lastName(sel.X) == "strings" || lastName(sel.X) == "fmt") && isErrorText(e)
}
