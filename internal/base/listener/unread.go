// SPDX-License-Identifier: Apache-2.0

package listener

import (
	"net/http"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Prompt aborts an answer, with its connection, if the caller reads less than
// limit.AnswerPart bytes within limit.AnswerWait: until then the answer, such as metrics,
// a status or a database snapshot, is kept in memory.
func Prompt(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := prompt{w, http.NewResponseController(w)}
		p.again() // for an answer without a body too
		h.ServeHTTP(p, r)
	})
}

type prompt struct {
	http.ResponseWriter
	control *http.ResponseController
}

// again restarts the wait. Only the writers of tests, which never wait, return an error.
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
