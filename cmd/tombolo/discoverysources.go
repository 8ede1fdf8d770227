// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/tombolo-io/tombolo/internal/discovery/announce"
	"github.com/tombolo-io/tombolo/internal/discovery/discoveryclient"
)

// tellSources prints which sources report no members, and again when that changes:
// a watch that prints nothing must not look like a cluster in which nothing happens.
func tellSources(ctx context.Context, w io.Writer, l *discoveryclient.Client) {
	last := map[string]string{}
	for {
		_, seen := l.Result()
		for _, line := range sourceNews(last, l.Status()) {
			fmt.Fprintln(w, line)
		}
		select {
		case <-seen:
		case <-ctx.Done():
			return
		}
	}
}

// sourceNews returns the changes in the state of the sources, and keeps the state in last. A
// source that has reported members from the start is not listed.
func sourceNews(last map[string]string, now []discoveryclient.Status) (out []string) {
	for _, s := range now {
		if s.Kind == discoveryclient.KindCache || s.State == discoveryclient.StateConnecting ||
			s.State == discoveryclient.StateOff {
			continue
		}
		name, state := s.Source+" "+s.Cluster, string(s.State)+" "+string(s.Code)
		before, known := last[name]
		last[name] = state
		switch {
		case before == state:
		case s.State != discoveryclient.StateAttending:
			out = append(out, fmt.Sprintf("warning: %s is %s: %s; known members stay, and it is tried again", s.Source,
				s.State, word(s.Reason, string(s.Code))))
		case known:
			out = append(out, fmt.Sprintf("note: %s tells of members again", s.Source))
		}
	}
	return out
}

// nobody is what to check when sources answer and there is no member, or "".
func nobody(list announce.List) string {
	switch alone, junk := list.Alone(); {
	case !alone:
		return ""
	case junk > 0:
		return fmt.Sprintf("note: nobody else is here who can be read with this secret, and %d entries are sealed with "+
			"another one: check the secret and cluster.id", junk)
	}
	return "note: nobody else is here under this secret: compare the cluster id that 'tombolo discovery secret show' " +
		"prints with that of another node"
}
