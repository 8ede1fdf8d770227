// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
)

// KindStatus is the kind of a Status; that of a discovery service has another one.
const KindStatus = "DiscoveryAnnouncement"

// Status is the answer to GET /v1/status.
type Status struct {
	admin.Meta
	Version   string                   `json:"version"`
	Since     time.Time                `json:"since"`
	Node      string                   `json:"node"`
	ID        string                   `json:"id"`       // the member id of the native protocol
	Clusters  []string                 `json:"clusters"` // native ids, of the newest secret first
	Entry     uint64                   `json:"entryVersion"`
	Lease     string                   `json:"lease"`
	Ready     bool                     `json:"ready"` // some source reports members, or none is configured
	Self      roster.Member            `json:"self"`  // with the addresses at which others saw it
	Members   int                      `json:"members"`
	Watchers  int                      `json:"watchers"`
	Sources   []discoveryclient.Status `json:"sources"`
	Conflicts []roster.Conflict        `json:"conflicts,omitempty"`
}

// List is the answer to GET /v1/members.
type List struct {
	admin.Meta
	Members   []roster.Member          `json:"members"`
	Conflicts []roster.Conflict        `json:"conflicts,omitempty"`
	Sources   []discoveryclient.Status `json:"sources"`
}

// Unsettled are the sources that have not said yet all that they know.
func (l List) Unsettled() (out []discoveryclient.Status) {
	for _, s := range l.Sources {
		if s.Kind != discoveryclient.KindCache && s.Kind != discoveryclient.KindAnnouncement && !s.Settled {
			out = append(out, s)
		}
	}
	return out
}

// Attended reports whether some source is attended.
func (l List) Attended() bool {
	return slices.ContainsFunc(l.Sources, func(s discoveryclient.Status) bool {
		return s.State == discoveryclient.StateAttending
	})
}

// Alone says whether there is no member although a service that works has said all that
// it knows, and how many entries could not be opened.
func (l List) Alone() (alone bool, junk int) {
	works := false
	for _, s := range l.Sources {
		junk += s.Junk
		works = works || s.Kind == discoveryclient.KindService && s.State == discoveryclient.StateAttending &&
			s.Settled && s.Code == "" && s.Refused == ""
	}
	return works && len(l.Members) == 0, junk
}

// Named is the list with the members of a name: of the node, or a member's id.
func (l List) Named(name string) List {
	l.Members = slices.DeleteFunc(slices.Clone(l.Members), func(m roster.Member) bool {
		return m.Node != name && m.ID != name && m.Nodename != name
	})
	return l
}

// ListOf is what a member knows at this moment.
func ListOf(m *discoveryclient.Client) List {
	sources := m.Status() // first: what a source that is settled has told is merged then
	r := m.Merged()
	return List{admin.Meta{APIVersion: v1alpha1.Version, Kind: "DiscoveryMembers"}, r.Members, r.Conflicts, sources}
}

// API serves what a member knows.
type API struct {
	member  *discoveryclient.Client
	version string
	began   time.Time
	ending  chan struct{} // closed when watchers are to be sent the end
	places  *run.Limiter
	seats   func(by int) int
}

// New makes the API of a member.
func New(m *discoveryclient.Client, version string) *API {
	return &API{member: m, version: version, began: time.Now(), ending: make(chan struct{}),
		places: run.NewLimiter(mostWatchers), seats: counter()}
}

// Status is how the member does.
func (a *API) Status() Status {
	list := ListOf(a.member)
	result, _ := a.member.Result()
	s := Status{
		Meta:    admin.Meta{APIVersion: v1alpha1.Version, Kind: KindStatus},
		Version: a.version, Since: a.began, Node: result.Self.Node, Entry: a.member.Version(),
		Lease: a.member.Lease().String(),
		Ready: a.member.Ready(), Self: result.Self, Members: len(list.Members), Watchers: a.seats(0),
		Sources: list.Sources, Conflicts: list.Conflicts,
	}
	if id, ok := a.member.ID(); ok {
		s.ID = id.String()
	}
	for _, c := range a.member.Clusters() {
		s.Clusters = append(s.Clusters, c.String())
	}
	return s
}

// Handler is the API over HTTP.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, a.Status()) })
	mux.HandleFunc("GET /v1/members", func(w http.ResponseWriter, r *http.Request) {
		if text := r.URL.Query().Get("wait"); text != "" {
			wait, err := time.ParseDuration(text)
			if err != nil || wait < 0 || wait > limit.DiscoveryWait {
				refuse(w, fault.Newf(fault.CodeRequest, "wait=%q is not within 0s and %v", text, limit.DiscoveryWait))
				return
			}
			a.member.AwaitSettled(r.Context(), wait)
		}
		answer(w, http.StatusOK, ListOf(a.member))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, fault.New(fault.CodeNotFound, "there is no such request").
			Hint("GET /v1/status, /v1/members and /v1/watch are those of a member"))
	})
	all := http.NewServeMux()
	all.HandleFunc("GET /v1/watch", a.watch) // whose reader may pause: what waits for it is bounded
	all.Handle("/", listener.Prompt(mux))
	return all
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(v) // a caller that is gone cannot be told
}

func refuse(w http.ResponseWriter, f *fault.Fault) {
	w.Header().Set("Tombolo-Fault", string(f.Code))
	answer(w, admin.HTTPStatus(fault.ClassOf(f.Code)), admin.BodyOf(f))
}
