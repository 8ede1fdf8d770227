// SPDX-License-Identifier: Apache-2.0

package carrier

import (
	"errors"
	"net"
)

func newMux(conn net.Conn, o Options, client bool) (Session, error) {
	return nil, errors.New("being written")
}
