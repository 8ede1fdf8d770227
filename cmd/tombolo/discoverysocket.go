// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
)

// announceSocket is the variable that names the admin socket of a member.
const announceSocket = "TOMBOLO_ANNOUNCE_SOCKET"

// asked is where members are queried: the member that runs on this machine, at its socket,
// or without one the sources themselves.
type asked struct {
	socket string
	must   bool // else the sources are asked if nobody answers
}

// at waits for the socket, unless the sources can be asked.
func (a asked) at(cmd *cobra.Command) at {
	if !a.must {
		return at{socket: a.socket}
	}
	return at{a.socket, patient{cmd.ErrOrStderr()}}
}

// whom decides who is asked. runDir gives that of the configuration.
func (f *lookupFlags) whom(env string, exists func(path string) bool, runDir func() (string, error)) (asked, error) {
	flags := f.secretFile != "" || len(f.services) > 0
	switch {
	case f.socket != "" && (flags || f.attend):
		return asked{}, usage("--admin-socket excludes --attend, --secret-file and --service",
			"ask the member that runs, or the services themselves")
	case f.socket != "":
		return asked{f.socket, true}, nil
	case flags || f.attend:
		return asked{}, nil
	case f.config != "":
		dir, err := runDir()
		if err != nil {
			return asked{}, err
		}
		if path := announce.AdminSocket(dir); exists(path) {
			return asked{path, false}, nil
		}
		return asked{}, nil
	case env != "":
		return asked{env, true}, nil
	}
	if path := announce.AdminSocket(discoveryclient.DefaultRunDir); exists(path) {
		return asked{path, true}, nil
	}
	return asked{}, usage("it is not said which cluster is meant, and no 'tombolo discovery announce' runs here",
		"--config FILE; or --secret-file FILE --service URL; or --admin-socket PATH of one that runs")
}

// mayExist also reports true for a path that this user may not access: opening it fails then.
func mayExist(path string) bool {
	_, err := os.Lstat(path)
	return err == nil || errors.Is(err, fs.ErrPermission)
}

// memberAway says that no member answers at a socket.
func memberAway(err error, socket string) error {
	switch {
	case fault.Has(err, fault.CodeHubAway):
		return noAnswer(err, "no 'tombolo discovery announce' answers at "+socket).
			Hint("start it, or name its socket with --admin-socket (only its user and root may ask); with --config and " +
				"--attend the sources are asked themselves")
	case fault.Has(err, fault.CodeNotFound):
		return fault.New(fault.CodeUsage, "it is no 'tombolo discovery announce' that answers at "+socket).
			Hint("%s is where one is by default", announce.AdminSocket(discoveryclient.DefaultRunDir))
	}
	return err
}

// membersOf asks the member that runs at a socket.
func membersOf(ctx context.Context, a at, wait time.Duration) (announce.List, error) {
	var list announce.List
	err := askSocket(ctx, wait+adminWait, a, "/v1/members?wait="+url.QueryEscape(wait.String()), &list)
	return list, memberAway(err, a.socket)
}

// askSocket asks the process that serves a socket, within a time limit: it may be frozen.
func askSocket(ctx context.Context, within time.Duration, a at, path string, out any) error {
	frozen := fault.New(fault.CodeServiceAway, "whoever serves "+a.socket+" does not answer").
		Whyf("nothing came for %v", within).
		Hint("see whether it is stopped or the machine is overloaded, and its log; restart it if it stays so")
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := a.client().Call(bounded, http.MethodGet, path, nil, out)
	if err != nil && run.Ended(ctx) == nil && run.Ended(bounded) != nil {
		return frozen
	}
	return err
}

// noAnswer is the fault of a socket that gave no answer, or an unreadable one.
func noAnswer(err error, what string) *fault.Fault {
	was := fault.From(err)
	return fault.New(fault.CodeServiceAway, what).Because(was.Unwrap()).Whyf("%s", was.Why)
}

// follow calls each with the events of members, until ctx ends. A reader that was
// too slow for the member starts again with the list. It reports whether the member answered.
func follow(ctx context.Context, a at, each func(announce.Line) error) (begun bool, err error) {
	for {
		lost := false
		lines := &announce.Lines{Each: func(l announce.Line) error {
			begun, lost = true, l.What == announce.Lost
			if err := each(l); err != nil {
				return err
			}
			if l.What == announce.Ended && l.Fault != nil {
				return l.Fault.Fault()
			}
			return nil
		}}
		_, err := a.client().Download(ctx, "/v1/watch", lines)
		switch {
		case ctx.Err() != nil:
			return begun, nil
		case err == nil && lost:
			continue
		case err == nil || begun && fault.Has(err, fault.CodeHubAway):
			return begun, fault.New(fault.CodeServiceAway,
				"the 'tombolo discovery announce' at "+a.socket+" has ended without a word").
				Whyf("it was killed, or failed").Hint("see its log; watch again once it runs")
		}
		return begun, memberAway(err, a.socket)
	}
}

// overhear polls a socket while it is followed, and reports once when it stops answering
// and once when it answers again: a frozen process sends no events, and neither does a
// cluster in which nothing happens.
func overhear(ctx context.Context, ask func(context.Context) error, say func(string)) {
	mute := false
	for ctx.Err() == nil {
		err := ask(ctx)
		switch f := fault.From(err); {
		case ctx.Err() != nil:
			return
		case fault.Has(err, fault.CodeServiceAway) && !mute:
			mute = true
			say("warning: " + f.What + ": " + f.Why + "; it is followed on. " + f.Next)
		case err == nil && mute:
			mute = false
			say("note: the socket answers again")
		}
		run.Wait(ctx, adminWait)
	}
}

// statusSocket decides whose status is asked for: that of the discovery service, or
// of the member, that runs here; also says whether both do.
func statusSocket(of, socket, serviceDefault, memberDefault string, exists func(string) bool) (path string, both bool) {
	switch {
	case socket != "":
		return socket, false
	case of == "announce":
		return memberDefault, false
	case of == "service":
		return serviceDefault, false
	case exists(serviceDefault):
		return serviceDefault, exists(memberDefault)
	case exists(memberDefault):
		return memberDefault, false
	}
	return serviceDefault, false
}

// printAnnouncement renders a member's status.
func printAnnouncement(w io.Writer, st announce.Status, now time.Time) error {
	ready := ""
	if !st.Ready {
		ready = ", not ready: no source answers"
	}
	fmt.Fprintf(w, "announcing node %s %s, running for %s%s\n", st.Node, st.Version, span(now.Sub(st.Since)), ready)
	fmt.Fprintf(w, "member %s, entry %d, lease %s\n", st.ID, st.Entry, st.Lease)
	for _, c := range st.Clusters {
		fmt.Fprintf(w, "cluster %s\n", c)
	}
	fmt.Fprintf(w, "%s known beside it; %s\n", plural(st.Members, "member"), plural(st.Watchers, "follower"))
	for i, e := range st.Self.Endpoints {
		fmt.Fprintf(w, "reached at %s (%s, %s)\n", e.Addr, e.Kind, sources(st.Self.Origin(i).Sources))
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "SOURCE\tKIND\tSTATE\tFOR\tMEMBERS\tKNOWS THIS NODE\tLAST ERROR")
	for _, s := range st.Sources {
		fmt.Fprintln(t, sourceRow(s, now))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range st.Sources {
		if s.Refused != "" {
			fmt.Fprintf(w, "warning: %s does not take what is announced: %s\n", s.Source, s.Refused)
		}
		if s.Warning != "" {
			fmt.Fprintf(w, "warning: %s: %s\n", s.Source, s.Warning)
		}
	}
	for _, c := range st.Conflicts {
		fmt.Fprintf(w, "conflict: %s\n", conflict(c))
	}
	return nil
}

func sourceRow(s discoveryclient.Status, now time.Time) string {
	kind, since, known, last := s.Kind, "-", "-", "-"
	if s.Protocol != "" {
		kind += "/" + string(s.Protocol)
	}
	if !s.Since.IsZero() {
		since = span(now.Sub(s.Since))
	}
	switch {
	case s.Announced.IsZero():
	case now.Before(s.Announced):
		known = "for " + span(s.Announced.Sub(now))
	default:
		known = "no longer"
	}
	state := string(s.State)
	if s.State == discoveryclient.StateAttending && !s.Settled && s.Kind == "service" {
		state += ", awaits members"
	}
	switch e := s.LastError; {
	case e != nil:
		last = fmt.Sprintf("%s ago: %s", span(now.Sub(e.At)), e.Reason)
	case s.Reason != "":
		last = s.Reason
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%s\t%s", s.Source, kind, state, since, s.Members, known, last)
}

// kindOfStatus distinguishes the answer of a member from that of a service.
func kindOfStatus(raw json.RawMessage) (string, error) {
	var meta admin.Meta
	if err := json.Unmarshal(raw, &meta); err != nil {
		return "", fault.New(fault.CodeServiceAway, "the answer of the admin socket cannot be read").Because(err)
	}
	return meta.Kind, nil
}
