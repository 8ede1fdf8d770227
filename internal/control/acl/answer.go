// SPDX-License-Identifier: Apache-2.0

package acl

import (
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/gardener"
)

// The contract of Gardener's extensions, as gardenlet waits for it: it asks by an annotation, and the answer is the
// last operation in the status.
const (
	annotationOperation = "gardener.cloud/operation"
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
	failed   string // why objects could not be written
	inForce  bool   // the gateways have it, or there is none
}

// answer is the status that an Extension should have; nil: the one that it has. clear says that the question is
// answered then, and its annotation has to go. All operations succeed once the list is written, as with Gardener's
// extension; Restore once it is in force, for until then the shoot is open at its new seed.
func answer(e extension, d done, now time.Time) (next *status, clear bool) {
	if e.leaves() || e.migrates() && e.operation() != opMigrate {
		return nil, false
	}
	at := now.UTC().Format(time.RFC3339)
	op := operation{Type: e.operation(), State: stateSucceeded, Progress: 100, Description: "the list is written",
		LastUpdateTime: at}
	var bad *lastError
	fail := func(why string, codes ...string) {
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
	case op.Type == opRestore && !d.inForce:
		op.State, op.Progress, op.Description = stateProcessing, 50, "the list is written, and not yet in force"
	}
	out := status{ObservedGeneration: e.Generation, LastOperation: &op, LastError: bad}
	if e.asked() == "" && sameStatus(e.Status, out) {
		return nil, false
	}
	return &out, e.asked() != ""
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
