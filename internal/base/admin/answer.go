// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"encoding/json"
	"net/http"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// WriteJSON writes an answer.
func WriteJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(v)
}

// WriteFault writes a fault as an answer.
func WriteFault(w http.ResponseWriter, err error) {
	f := fault.From(err)
	w.Header().Set("Tombolo-Fault", string(f.Code))
	WriteJSON(w, HTTPStatus(fault.ClassOf(f.Code)), BodyOf(f))
}
