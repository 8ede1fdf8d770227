// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"slices"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/gardener"
)

// The contract of Gardener's extensions, as gardenlet waits for it: it asks by an annotation, and the answer is the
// last operation in the status.
const (
	annotationOperation = "gardener.cloud/operation"
	askReconcile        = "reconcile"
	askMigrate          = "migrate"
	askRestore          = "restore"

	opCreate    = "Create"
	opReconcile = "Reconcile"
	opMigrate   = "Migrate"
	opRestore   = "Restore"

	stateSucceeded  = "Succeeded"
	stateProcessing = "Processing"
	stateError      = "Error"

	codeUser = "ERR_CONFIGURATION_PROBLEM" // gardenlet waits for the user, and does not try again meanwhile
)

// status is that of an Extension, as far as it is answered here.
type status struct {
	ObservedGeneration int64      `json:"observedGeneration,omitempty"`
	LastOperation      *operation `json:"lastOperation,omitempty"`
	LastError          *lastError `json:"lastError,omitempty"`
}

type operation struct {
	Type           string `json:"type"`
	State          string `json:"state"`
	Progress       int    `json:"progress"`
	Description    string `json:"description"`
	LastUpdateTime string `json:"lastUpdateTime"`
}

type lastError struct {
	Description    string   `json:"description"`
	Codes          []string `json:"codes,omitempty"`
	LastUpdateTime string   `json:"lastUpdateTime,omitempty"`
}

// asked is the operation that gardenlet asks for.
func (e extension) asked() string { return e.Metadata.Annotations[annotationOperation] }

// operation is the one that is being done.
func (e extension) operation() string {
	last := e.Status.LastOperation
	switch ask := e.asked(); {
	case ask == askMigrate:
		return opMigrate
	case ask == askRestore:
		return opRestore
	case last == nil:
		return opCreate
	case last.State != stateSucceeded && (last.Type == opCreate || last.Type == opMigrate || last.Type == opRestore):
		return last.Type
	}
	return opReconcile
}

// migrates reports whether the shoot moves to another seed.
func (e extension) migrates() bool {
	return e.operation() == opMigrate || e.asked() == "" && e.Status.LastOperation != nil &&
		e.Status.LastOperation.Type == opMigrate
}

// done is how far the list of an Extension is.
type done struct {
	problems []gardener.Problem
	closed   bool   // as long as there are problems, only the platform gets in
	failed   string // why objects could not be written
	waits    string // why the gateways do not have the list yet; empty: they have it, or no gateway leads to the shoot
}

// answer is the status that an Extension should have; nil: the one that it has. clear says that its annotation has to
// go, which is read at once if it asks for a reconciliation, and stays until it is done if the shoot moves. An
// operation succeeds when the list is in force, not when it is written: a shoot that is made, or comes from another
// seed, is open until then. Deleting has no answer: gardenlet waits until the object is gone.
func answer(e extension, d done, now time.Time) (next *status, clear bool) {
	if e.leaves() || e.migrates() && e.operation() != opMigrate {
		return nil, false
	}
	ask := e.asked()
	if ask != "" && ask != askReconcile && ask != askRestore && ask != askMigrate {
		return nil, false // such as wait-for-state: the question is still to come
	}
	at := now.UTC().Format(time.RFC3339)
	op := operation{Type: e.operation(), State: stateSucceeded, Progress: 100, Description: "the list is in force",
		LastUpdateTime: at}
	var bad *lastError
	fail := func(why string, codes ...string) {
		if d.closed {
			why = cut("only the platform gets in until a list is accepted: " + why)
		}
		op.State, op.Progress, op.Description = stateError, 50, why
		bad = &lastError{Description: why, Codes: codes, LastUpdateTime: at}
	}
	switch text, users := refusal(d.problems); {
	case op.Type == opMigrate:
		op.Description = "the list stays in force until the Extension is gone"
	case text != "" && users:
		fail(text, codeUser)
	case text != "":
		fail(text)
	case d.failed != "":
		fail(d.failed)
	case d.waits != "" && (ask != "" || !e.succeeded()):
		op.State, op.Progress, op.Description = stateProcessing, 50, d.waits
	}
	out := status{ObservedGeneration: e.Generation, LastOperation: &op, LastError: bad}
	clear = ask == askReconcile || ask != "" && op.State == stateSucceeded
	if !clear && sameStatus(e.Status, out) {
		return nil, false
	}
	return &out, clear
}

// succeeded reports whether the Extension as it is was answered with success. What changes later is written then too,
// but that is no operation of gardenlet's.
func (e extension) succeeded() bool {
	last := e.Status.LastOperation
	return last != nil && last.State == stateSucceeded && e.Status.ObservedGeneration == e.Generation
}

// foreignFinalizer is the one that Gardener's extension sets. Who answers in its place has to take it away, for nobody
// else would. There is none of our own: gardenlet waits until the object is gone, and what follows from that needs no
// object.
const foreignFinalizer = "extensions.gardener.cloud/acl-extension-service"

// released are the finalizers that an Extension should have, if it is deleted or has moved; false: those that it has.
func (e extension) released() ([]string, bool) {
	if !e.leaves() && !e.migrates() || !slices.Contains(e.Finalizers, foreignFinalizer) {
		return nil, false
	}
	return slices.DeleteFunc(slices.Clone(e.Finalizers), func(f string) bool { return f == foreignFinalizer }), true
}

// sameStatus compares what they say, but not when.
func sameStatus(a, b status) bool {
	if a.ObservedGeneration != b.ObservedGeneration || a.LastOperation == nil {
		return false
	}
	if (a.LastError == nil) != (b.LastError == nil) {
		return false
	}
	was, is := *a.LastOperation, *b.LastOperation
	if was.LastUpdateTime = is.LastUpdateTime; was.State == stateSucceeded && is.State == stateSucceeded {
		return true // of another operation, or in the words of somebody else
	}
	return was == is && (a.LastError == nil || a.LastError.Description == b.LastError.Description)
}

// mostRefusal bounds what is stored in a status and told in an event.
const mostRefusal = 1000

// refusal says why a list is not in force as it is written; empty: it is. users says that its author can mend it.
func refusal(problems []gardener.Problem) (text string, users bool) {
	var all []string
	users = true
	for _, p := range problems {
		if p.Warning {
			continue
		}
		all = append(all, p.String())
		users = users && strings.HasPrefix(p.Path, gardener.InExtension)
	}
	return cut(strings.Join(all, "\n")), users && len(all) > 0
}

// notice are the warnings.
func notice(problems []gardener.Problem) string {
	var all []string
	for _, p := range problems {
		if p.Warning {
			all = append(all, p.String())
		}
	}
	return cut(strings.Join(all, "\n"))
}

func cut(s string) string {
	if len(s) <= mostRefusal {
		return s
	}
	return strings.ToValidUTF8(s[:mostRefusal-3], "") + "..."
}
