// SPDX-License-Identifier: Apache-2.0

package kubetest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

func base64Of(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// ServeHTTP answers as an API server does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	collection, name := cut(r.URL.Path)
	watching := r.URL.Query().Get("watch") != ""
	s.mu.Lock()
	what := r.Method
	switch {
	case watching:
		what = "WATCH"
	case name == "" && r.Method == http.MethodGet:
		what = "LIST"
	}
	s.requests[what+" "+r.URL.Path]++
	away, mangle := s.away, s.mangle
	w.Header().Set("Date", s.clock().UTC().Format(http.TimeFormat))
	s.mu.Unlock()
	node, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case away:
		status(w, http.StatusServiceUnavailable, "etcd is away")
	case mangle != nil && mangle(r, w):
	case !ok:
		status(w, http.StatusUnauthorized, "Unauthorized")
	case strings.HasPrefix(r.URL.Path, admission):
		s.policy(w, strings.TrimPrefix(r.URL.Path, admission))
	case collection == "":
		status(w, http.StatusNotFound, "the server could not find the requested resource")
	case collection == Nodes && !s.mayNodes(name, selected(r), node):
		status(w, http.StatusForbidden, fmt.Sprintf(`nodes is forbidden: User "system:node:%s" cannot %s `+
			`resource "nodes" in API group "" at the cluster scope`, node, strings.ToLower(what)))
	case watching:
		s.watch(w, r, collection)
	case name == "":
		s.list(w, r, collection)
	default:
		s.one(w, r, collection, name, node)
	}
}

const admission = "/apis/admissionregistration.k8s.io/v1/"

// policy answers with the policy for Members, or its binding.
func (s *Server) policy(w http.ResponseWriter, path string) {
	s.mu.Lock()
	lacks := s.unguarded
	s.mu.Unlock()
	kind, name, _ := strings.Cut(path, "/")
	spec := map[string]any{"failurePolicy": "Fail"}
	switch {
	case lacks == "right":
		status(w, http.StatusForbidden, kind+" is forbidden")
		return
	case name != "members.tombolo.dev" || kind == "validatingadmissionpolicies" && lacks == "policy" ||
		kind == "validatingadmissionpolicybindings" && lacks == "binding":
		status(w, http.StatusNotFound, kind+" not found")
		return
	case kind == "validatingadmissionpolicybindings" && lacks == "deny":
		spec = map[string]any{"policyName": name, "validationActions": []string{"Audit"}}
	case kind == "validatingadmissionpolicybindings":
		spec = map[string]any{"policyName": name, "validationActions": []string{"Deny"}}
	}
	answer(w, http.StatusOK, map[string]any{"spec": spec})
}

// mayNodes is the node authorizer of 1.32: of a list and a watch the one that is selected counts.
func (s *Server) mayNodes(name, selected, node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return name == node || name == "" && (s.mayList || selected == node && !s.onlyGet)
}

// selected is the name that a list or a watch is about; empty: all.
func selected(r *http.Request) string {
	return strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
}

func status(w http.ResponseWriter, code int, message string) {
	answer(w, code, map[string]any{"kind": "Status", "code": code, "message": message})
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, collection string) {
	s.mu.Lock()
	q := r.URL.Query()
	var items []map[string]any
	version, begin := s.version, 0
	if token := q.Get("continue"); token != "" {
		at, rest, _ := strings.Cut(token, "/")
		items = s.pages[at]
		if items == nil {
			s.mu.Unlock()
			status(w, http.StatusGone, "The provided continue parameter is too old")
			return
		}
		version, _ = strconv.Atoi(at)
		begin, _ = strconv.Atoi(rest)
	} else {
		for _, name := range slices.Sorted(maps.Keys(s.objects[collection])) {
			if only := selected(r); only != "" && only != name {
				continue
			}
			items = append(items, copied(s.objects[collection][name]))
		}
		if selected(r) == "" {
			s.pages[strconv.Itoa(version)] = items
		}
	}
	s.mu.Unlock()
	meta := map[string]any{"resourceVersion": strconv.Itoa(version)}
	end := len(items)
	if n, err := strconv.Atoi(q.Get("limit")); err == nil && begin+n < end {
		end = begin + n
		meta["continue"] = fmt.Sprintf("%d/%d", version, end)
	}
	answer(w, http.StatusOK, map[string]any{"metadata": meta, "items": items[begin:end]})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, collection string) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		status(w, http.StatusBadRequest, "no resourceVersion")
		return
	}
	seconds, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	end := time.NewTimer(time.Duration(max(seconds, 1)) * time.Second)
	defer end.Stop()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	out := json.NewEncoder(w)
	for {
		s.mu.Lock()
		away, gone, changed, version := s.away, from < s.forgotten, s.changed, s.version
		var events []change
		for _, c := range s.log {
			if c.version > from && c.collection == collection &&
				(selected(r) == "" || c.object["metadata"].(map[string]any)["name"] == selected(r)) {
				events = append(events, c)
			}
		}
		s.mu.Unlock()
		if away {
			return
		}
		if gone {
			_ = out.Encode(map[string]any{"type": "ERROR",
				"object": map[string]any{"code": 410, "message": "too old resource version"}})
			return
		}
		for _, e := range events {
			_ = out.Encode(map[string]any{"type": e.kind, "object": e.object})
		}
		from = version
		_ = out.Encode(map[string]any{"type": "BOOKMARK",
			"object": map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(version)}}})
		if flush.Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) one(w http.ResponseWriter, r *http.Request, collection, name, node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, sub, _ := strings.Cut(name, "/")
	old := s.objects[collection][name]
	own := name
	if _, of, ok := strings.Cut(name, "."); ok && collection == NodeConfigs {
		own = of
	}
	if r.Method != http.MethodGet && node != own && node != "admin" && (s.unguarded == "" || s.unguarded == "right") {
		status(w, http.StatusForbidden, "ValidatingAdmissionPolicy 'members.tombolo.dev' denied request: "+
			"a node writes the Member of its own name only")
		return
	}
	if old == nil && sub != "" || old == nil && r.Header.Get("Content-Type") != "application/apply-patch+yaml" {
		status(w, http.StatusNotFound, fmt.Sprintf("%q not found", name))
		return
	}
	switch r.Method {
	case http.MethodGet:
		answer(w, http.StatusOK, old)
	case http.MethodDelete:
		s.remove(collection, name)
		answer(w, http.StatusOK, map[string]any{"kind": "Status", "code": 200})
	case http.MethodPatch:
		patch := readAll(r)
		if patch == nil {
			status(w, http.StatusBadRequest, "the body is no object")
			return
		}
		if r.Header.Get("Content-Type") == "application/merge-patch+json" {
			patch = merged(copied(old), patch)
		}
		s.apply(collection, name, sub, patch)
		answer(w, http.StatusOK, s.objects[collection][name])
	default:
		status(w, http.StatusMethodNotAllowed, "no")
	}
}

// apply puts an object, or its status alone. A status stays where the rest is put; s.mu is held.
func (s *Server) apply(collection, name, sub string, o map[string]any) {
	if old := s.objects[collection][name]; collection == NodeConfigs && old != nil {
		from, to := old, o
		if sub == "status" {
			from, to = o, copied(old)
		}
		if to["status"] = from["status"]; reflect.DeepEqual(to["spec"], old["spec"]) {
			s.putSame(name, to)
			return
		}
		o = to
	}
	s.put(collection, name, o)
}

// putSame puts a NodeConfig whose generation stays, since its spec does; s.mu is held.
func (s *Server) putSame(name string, o map[string]any) {
	generation := s.objects[NodeConfigs][name]["metadata"].(map[string]any)["generation"]
	s.put(NodeConfigs, name, o)
	o["metadata"].(map[string]any)["generation"] = generation
}

// merged is RFC 7386.
func merged(into, patch map[string]any) map[string]any {
	for k, v := range patch {
		inner, isMap := v.(map[string]any)
		have, _ := into[k].(map[string]any)
		switch {
		case v == nil:
			delete(into, k)
		case isMap:
			if have == nil {
				have = map[string]any{}
			}
			into[k] = merged(have, inner)
		default:
			into[k] = v
		}
	}
	return into
}
