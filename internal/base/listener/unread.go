// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"net/http"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Prompt has each answer end, with its connection, if its caller takes nothing of
// limit.AnswerPart bytes for limit.AnswerWait: what a handler has made, such as metrics, a
// status or the snapshot of a database, is kept until then.
func Prompt(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := prompt{w, http.NewResponseController(w)}
		p.again() // of an answer without a body, too
		h.ServeHTTP(p, r)
	})
}

type prompt struct {
	http.ResponseWriter
	control *http.ResponseController
}

// again begins the wait. An error is that of a test's writer, which never waits.
func (p prompt) again() { _ = p.control.SetWriteDeadline(time.Now().Add(limit.AnswerWait)) }

// Unwrap is for http.ResponseController.
func (p prompt) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Write implements io.Writer.
func (p prompt) Write(b []byte) (n int, err error) {
	for {
		part := b[n:min(len(b), n+limit.AnswerPart)]
		p.again()
		m, err := p.ResponseWriter.Write(part)
		if n += m; err != nil || n == len(b) {
			return n, err
		}
	}
}
