// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"
)

// portZone stands behind the name of a port where CONNECT (RFC 9110 section 9.3.6) wants a host, and :1 where it wants
// a number. It is no zone of DNS, and nobody resolves it.
const portZone = ".port.tombolo:1"

// portName bounds the name of a port: it is a label of DNS.
const portName = 63

// CheckPort refuses a text that is no name of a port: small letters, digits and '-', with a letter first.
func CheckPort(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("the name is missing")
	case len(name) > portName:
		return fmt.Errorf("the name has %d characters; at most %d are accepted", len(name), portName)
	case strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "", name[0] < 'a', name[len(name)-1] == '-':
		return fmt.Errorf("name %q may have small letters, digits and '-', with a letter first and no '-' last", name)
	}
	return nil
}

// PortAddress is what an agent asks for by CONNECT to reach a port of the hub.
func PortAddress(name string) string { return name + portZone }

// ParsePort reads the name in what PortAddress gives.
func ParsePort(address string) (name string, ok bool) {
	name, ok = strings.CutSuffix(address, portZone)
	if !ok || CheckPort(name) != nil {
		return "", false
	}
	return name, true
}
