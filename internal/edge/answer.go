// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// The alerts of RFC 8446 section 6.2 that a client shows to its user.
const (
	alertDecode           = 50
	alertAccessDenied     = 49
	alertInternal         = 80
	alertUnrecognizedName = 112
)

// alert is the answer to a ClientHello, in a record that is not encrypted: the handshake has not begun.
func alert(code fault.Code) []byte {
	what := byte(alertInternal)
	switch fault.ClassOf(code) {
	case fault.Invalid:
		what = alertDecode
	case fault.Denied:
		what = alertAccessDenied
	case fault.NotFound:
		what = alertUnrecognizedName
	}
	if code == fault.CodeNameMissing {
		what = alertUnrecognizedName
	}
	return []byte{21, 3, 1, 0, 2, 2, what}
}

// response is the answer to a request that is refused. Who is refused learns the code, not the rule.
func response(f *fault.Fault) string {
	status := http.StatusBadGateway
	switch fault.ClassOf(f.Code) {
	case fault.Invalid:
		status = http.StatusBadRequest
	case fault.Unauthenticated, fault.Denied, fault.NotFound:
		status = http.StatusForbidden
	case fault.Exhausted:
		status = http.StatusTooManyRequests
	case fault.Timeout:
		status = http.StatusGatewayTimeout
	case fault.Unavailable:
		status = http.StatusServiceUnavailable
	}
	body := fmt.Sprintf("%s: %s\n", f.Code, f.What)
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nTombolo-Fault: %s\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Connection: close\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), f.Code, len(body), body)
}

// answer refuses a visit in the client's protocol.
func (v *visit) answer(err error) {
	v.conn.SetDeadline(time.Now().Add(answerTime))
	var to redirect
	f := fault.From(err)
	switch {
	case errors.As(err, &to):
		fmt.Fprintf(v.conn, "HTTP/1.1 301 Moved Permanently\r\nLocation: %s\r\nConnection: close\r\n"+
			"Content-Length: 0\r\n\r\n", to.to)
	case f.Code == fault.CodeNotTLS, f.Code == fault.CodeProxyHeader, f.Code == fault.CodeDialCanceled:
		return // whoever is there does not speak what is spoken here
	case v.at.Silent && (f.Code == fault.CodeNameUnknown || f.Code == fault.CodeNameMissing):
		return
	case v.at.Connect:
		io.WriteString(v.conn, response(f))
	default:
		v.conn.Write(alert(f.Code))
	}
	v.conn.CloseWrite()
	io.Copy(io.Discard, io.LimitReader(v.conn, discard)) // else unread bytes would reset what was answered
}

// established answers a CONNECT.
func (v *visit) established() error {
	v.conn.SetWriteDeadline(time.Now().Add(answerTime))
	defer v.conn.SetWriteDeadline(time.Time{})
	if _, err := io.WriteString(v.conn, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		return fault.New(fault.CodeDialCanceled, "the client gave up").Because(err)
	}
	return nil
}
