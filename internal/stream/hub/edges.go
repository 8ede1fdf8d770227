// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/policy"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
)

// edgeHandler is what edges may ask: for a stream into a cluster, and for the names of the
// clusters into which they may dial.
func (ap *api) edgeHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(streamPattern, ap.apiStream)
	mux.HandleFunc("GET /v1/clusters/names", answering(ap.apiNames))
	mux.HandleFunc("/", noSuchRequest)
	return mux
}

// apiNames lists the clusters in which the policy lets the edge dial a target. A request with the
// version of a list waits until there is another one, but not for long.
func (ap *api) apiNames(r *http.Request) (any, error) {
	target, err := policy.ParseTarget(r.URL.Query().Get("target"))
	if err != nil {
		return nil, fault.New(fault.CodeRequest, "the target cannot be read").Because(err).
			Hint("ask for /v1/clusters/names?target=HOST:PORT")
	}
	had := r.URL.Query().Get("version")
	end := time.NewTimer(namesWait)
	defer end.Stop()
	for waited := had == ""; ; {
		changed := ap.clusters.changed()
		out := ap.namesFor(r, target)
		if waited || out.Version != had {
			return out, nil
		}
		select {
		case <-r.Context().Done():
			return nil, fault.New(fault.CodeDialCanceled, "the edge gave up")
		case <-changed:
		case <-end.C:
			waited = true
		}
	}
}

func (ap *api) namesFor(r *http.Request, target policy.Target) admin.ClusterNames {
	out := admin.ClusterNames{Meta: meta("ClusterNames"), Names: []string{}}
	sum, who := sha256.New(), ap.asker(r, id.Cluster{})
	for _, c := range ap.clusters.all() {
		q := policy.Request{
			Cluster: c.name.String(), Caller: who.Caller, Flow: policy.FlowDial, Source: who.Address(),
			Name: target.Name, Addr: target.Addr, Port: target.Port, Own: ap.own.FromAfar(),
		}
		if v := ap.access.Decide(q); v.Allow || v.Open {
			out.Names = append(out.Names, q.Cluster)
			sum.Write([]byte(q.Cluster + "\n"))
		}
	}
	out.Version = base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12])
	return out
}
