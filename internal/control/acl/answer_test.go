// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/gardener"
)

func TestTheAnswerToGardenlet(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	user := []gardener.Problem{{Path: "spec.providerConfig.rule", What: "bad"}, {Warning: true, What: "odd"}}
	other := []gardener.Problem{{Object: "Cluster c", What: "missing"}}
	was := func(kind, state, why string) *operation {
		return &operation{Type: kind, State: state, Progress: map[string]int{stateSucceeded: 100, stateError: 50}[state], Description: why}
	}
	const good = "the list is in force"
	waits := done{waits: "wait"}
	for name, c := range map[string]struct {
		asked    string
		observed int64
		last     *operation
		failed   *lastError
		deleted  bool
		done     done
		want     string // type, state, progress, error, codes, clear; empty: nothing
	}{
		"a new one":                {asked: "reconcile", want: "Create Succeeded 100 false [] true"},
		"nobody asked":             {want: "Create Succeeded 100 false [] false"},
		"a list that is bad":       {asked: "reconcile", done: done{problems: user}, want: "Create Error 50 true [ERR_CONFIGURATION_PROBLEM] true"},
		"an object that is bad":    {asked: "reconcile", done: done{problems: other}, want: "Create Error 50 true [] true"},
		"what cannot be written":   {asked: "reconcile", done: done{failed: "no right"}, want: "Create Error 50 true [] true"},
		"again":                    {asked: "reconcile", observed: 1, last: was(opCreate, stateSucceeded, good), want: "Reconcile Succeeded 100 false [] true"},
		"after a failed creation":  {asked: "reconcile", observed: 1, last: was(opCreate, stateError, "x"), want: "Create Succeeded 100 false [] true"},
		"nothing new":              {observed: 1, last: was(opReconcile, stateSucceeded, good)},
		"a new generation":         {last: was(opReconcile, stateSucceeded, good), want: "Reconcile Succeeded 100 false [] false"},
		"still bad":                {observed: 1, last: was(opReconcile, stateError, "Cluster c: missing"), failed: &lastError{Description: "Cluster c: missing"}, done: done{problems: other}},
		"bad later":                {observed: 1, last: was(opReconcile, stateSucceeded, good), done: done{problems: other}, want: "Reconcile Error 50 true [] false"},
		"mended later":             {observed: 1, last: was(opReconcile, stateError, "x"), failed: &lastError{Description: "x"}, want: "Reconcile Succeeded 100 false [] false"},
		"after a creation":         {observed: 1, last: was(opCreate, stateSucceeded, good)},
		"it moves away":            {asked: "migrate", observed: 1, last: was(opReconcile, stateSucceeded, good), done: done{problems: other}, want: "Migrate Succeeded 100 false [] true"},
		"it moved away":            {observed: 1, last: was(opMigrate, stateSucceeded, "x"), done: done{problems: other}},
		"it moved, and is deleted": {observed: 1, last: was(opMigrate, stateSucceeded, "x"), deleted: true},
		"it is deleted":            {asked: "reconcile", deleted: true},
		"it comes":                 {asked: "restore", done: waits, want: "Restore Processing 50 false [] false"},
		"it waits":                 {asked: "restore", observed: 1, last: &operation{Type: opRestore, State: stateProcessing, Progress: 50, Description: "wait"}, done: waits},
		"it is in force":           {asked: "restore", observed: 1, last: was(opRestore, stateProcessing, "x"), want: "Restore Succeeded 100 false [] true"},
		"it comes, and is bad":     {asked: "restore", done: done{problems: user}, want: "Restore Error 50 true [ERR_CONFIGURATION_PROBLEM] false"},
		"it is still bad":          {asked: "restore", observed: 1, last: was(opRestore, stateError, "Cluster c: missing"), failed: &lastError{Description: "Cluster c: missing"}, done: done{problems: other}},
		"a restore that failed":    {observed: 1, last: was(opRestore, stateError, "x"), want: "Restore Succeeded 100 false [] false"},
		"its state is to come":     {asked: "wait-for-state"},
		"a new one waits":          {asked: "reconcile", done: waits, want: "Create Processing 50 false [] true"},
		"an edit waits":            {asked: "reconcile", last: was(opReconcile, stateSucceeded, good), done: waits, want: "Reconcile Processing 50 false [] true"},
		"it still waits":           {observed: 1, last: &operation{Type: opReconcile, State: stateProcessing, Progress: 50, Description: "wait"}, done: waits},
		"it waited":                {observed: 1, last: was(opReconcile, stateProcessing, "wait"), want: "Reconcile Succeeded 100 false [] false"},
		"other egress later":       {observed: 1, last: was(opReconcile, stateSucceeded, good), done: waits},
		"closed":                   {observed: 1, last: was(opCreate, stateError, "only the platform gets in until a list is accepted: Cluster c: missing"), failed: &lastError{Description: "only the platform gets in until a list is accepted: Cluster c: missing"}, done: done{problems: other, closed: true}},
	} {
		e := extension{Generation: 1, Status: status{ObservedGeneration: c.observed, LastOperation: c.last, LastError: c.failed}}
		if c.asked != "" {
			e.Metadata.Annotations = map[string]string{annotationOperation: c.asked}
		}
		if c.deleted {
			e.Metadata.DeletionTimestamp = "2026-01-01T00:00:00Z"
		}
		next, clears := answer(e, c.done, now)
		got := ""
		if next != nil {
			codes := []string{}
			if next.LastError != nil {
				codes = append(codes, next.LastError.Codes...)
			}
			o := next.LastOperation
			got = fmt.Sprint(o.Type, " ", o.State, " ", o.Progress, " ", next.LastError != nil, " ", codes, " ", clears)
			if next.ObservedGeneration != 1 || o.LastUpdateTime != "2026-01-02T03:04:05Z" || o.Description == "" {
				t.Errorf("%s: %+v", name, next)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Nobody else takes away what Gardener's extension set, and it is needed until the list ends.
func TestTheFinalizerOfGardenersExtension(t *testing.T) {
	for name, c := range map[string]struct {
		asked, deleted string
		have, want     []string
		changes        bool
	}{
		"it is there":    {have: []string{foreignFinalizer}},
		"deleted":        {deleted: "2026-01-01T00:00:00Z", have: []string{"x", foreignFinalizer}, want: []string{"x"}, changes: true},
		"it moves":       {asked: askMigrate, have: []string{foreignFinalizer}, changes: true},
		"of others":      {deleted: "2026-01-01T00:00:00Z", have: []string{"x"}},
		"asked to write": {asked: askReconcile, have: []string{foreignFinalizer}},
	} {
		e := extension{Finalizers: c.have}
		e.Metadata.DeletionTimestamp = c.deleted
		e.Metadata.Annotations = map[string]string{annotationOperation: c.asked}
		if got, changes := e.released(); changes != c.changes || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, changes)
		}
	}
}
