// SPDX-License-Identifier: Apache-2.0

// Package clienthello reads the first message of a TLS client without ending TLS:
// the name that it asks for, its protocols, and whether the real name is encrypted.
// It never changes a byte and does not decide where a connection goes.
package clienthello

import (
	"encoding/binary"

	"golang.org/x/crypto/cryptobyte"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/hostname"
)

// Most is how many bytes of records a ClientHello may take. Key shares of
// post-quantum groups take 1 to 2 KB each; crypto/tls stops at the same size.
const Most = 64 << 10

const (
	recordHeader  = 5
	mostRecord    = 1 << 14 // RFC 8446 section 5.1
	mostRecords   = 32      // each one more makes us look again
	mostProtocols = 32
)

// Hello is what the edge needs of a ClientHello.
type Hello struct {
	Name      string   // server_name in lower case without a final dot (RFC 6066 section 3); empty: none was sent
	Protocols []string // ALPN in the client's order (RFC 7301)
	// Encrypted says that there is an outer encrypted_client_hello (RFC 9849): Name may
	// be that of a fronting server. A client may also send one that means nothing.
	Encrypted bool
	Size      int // bytes of the records that carried it
}

// Parse reads what a connection begins with. While it is not complete, need is how
// many bytes are missing at least. Errors are faults: not_tls, header_too_large or
// request_malformed.
func Parse(b []byte) (h Hello, need int, err error) {
	var message []byte
	records := 0
	for off := 0; ; {
		head := b[off:min(len(b), off+recordHeader)]
		if err := checkRecord(head, off == 0); err != nil {
			return Hello{}, 0, err
		}
		if len(head) < recordHeader {
			return Hello{}, off + recordHeader - len(b), nil
		}
		if records++; records > mostRecords {
			return Hello{}, 0, malformed("the ClientHello comes in more than %d records", mostRecords)
		}
		size := int(binary.BigEndian.Uint16(head[3:]))
		end := off + recordHeader + size
		part := b[off+recordHeader : min(len(b), end)]
		if records == 1 {
			message = part // most come in one
		} else {
			message = append(message[:len(message):len(message)], part...)
		}
		whole, err := length(message)
		switch {
		case err != nil:
			return Hello{}, 0, err
		case len(b) < end:
			return Hello{}, end - len(b), nil
		case whole == 0 || len(message) < whole:
			off = end
			continue
		case len(message) > whole:
			return Hello{}, 0, malformed("%d bytes follow the ClientHello in its record", len(message)-whole)
		}
		h, err = parse(message[4:])
		h.Size = end
		return h, 0, err
	}
}

// checkRecord judges as much of a record's header as has come.
func checkRecord(head []byte, first bool) error {
	switch {
	case len(head) > 0 && head[0] != 22 || len(head) > 1 && head[1] != 3:
		if first {
			return fault.New(fault.CodeNotTLS, "the connection does not begin with TLS").
				Hint("connect with TLS and a server name")
		}
		return malformed("a record within the ClientHello is of another kind")
	case len(head) < recordHeader:
		return nil
	}
	if size := int(binary.BigEndian.Uint16(head[3:])); size == 0 || size > mostRecord {
		return malformed("a record has %d bytes", size)
	}
	return nil
}

// length is that of the whole handshake message; 0 while it is not known.
func length(message []byte) (int, error) {
	if len(message) > 0 && message[0] != 1 {
		return 0, malformed("the first message is no ClientHello but of type %d", message[0])
	}
	if len(message) < 4 {
		return 0, nil
	}
	whole := 4 + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
	if whole+recordHeader > Most {
		return 0, fault.New(fault.CodeHeaderTooLarge, "the ClientHello is too large").
			Whyf("it has %d bytes; at most %d are read", whole, Most-recordHeader)
	}
	return whole, nil
}

// The extensions that matter here (IANA, TLS ExtensionType Values).
const (
	extServerName     = 0
	extALPN           = 16
	extEncryptedHello = 0xfe0d
)

// parse reads the body (RFC 8446 section 4.1.2).
func parse(body []byte) (h Hello, err error) {
	s := cryptobyte.String(body)
	var session, suites, compression cryptobyte.String
	if !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&session) || len(session) > 32 ||
		!s.ReadUint16LengthPrefixed(&suites) || len(suites) < 2 || len(suites)%2 != 0 ||
		!s.ReadUint8LengthPrefixed(&compression) || len(compression) == 0 {
		return Hello{}, malformed("the ClientHello ends early or has a list of a wrong length")
	}
	if s.Empty() { // TLS 1.2 without extensions
		return Hello{}, nil
	}
	var extensions cryptobyte.String
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return Hello{}, malformed("the extensions have a wrong length")
	}
	seen := make(map[uint16]struct{}, 24)
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) {
			return Hello{}, malformed("an extension has a wrong length")
		}
		if _, twice := seen[kind]; twice { // RFC 8446 section 4.2
			return Hello{}, malformed("extension %d comes twice", kind)
		}
		seen[kind] = struct{}{}
		switch kind {
		case extServerName:
			h.Name, err = serverName(data)
		case extALPN:
			h.Protocols, err = protocols(data)
		case extEncryptedHello:
			h.Encrypted = len(data) > 0 && data[0] == 0 // ECHClientHelloType outer
		}
		if err != nil {
			return Hello{}, err
		}
	}
	return h, nil
}

// serverName reads a ServerNameList. Only one host name was ever defined, and a
// second entry could be read differently by the server behind.
func serverName(data cryptobyte.String) (string, error) {
	var list, name cryptobyte.String
	var kind uint8
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || !list.ReadUint8(&kind) || kind != 0 ||
		!list.ReadUint16LengthPrefixed(&name) || !list.Empty() {
		return "", malformed("the server name is not exactly one host name")
	}
	clean, err := hostname.Parse(string(name))
	if err != nil {
		return "", malformed("the server name is no host name")
	}
	return clean, nil
}

func protocols(data cryptobyte.String) ([]string, error) {
	var list cryptobyte.String
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || list.Empty() {
		return nil, malformed("the list of protocols (ALPN) has a wrong length")
	}
	var out []string
	for !list.Empty() {
		var name cryptobyte.String
		if !list.ReadUint8LengthPrefixed(&name) || name.Empty() {
			return nil, malformed("the list of protocols (ALPN) has a wrong length")
		}
		if out = append(out, string(name)); len(out) > mostProtocols {
			return nil, malformed("more than %d protocols (ALPN) are offered", mostProtocols)
		}
	}
	return out, nil
}

func malformed(format string, args ...any) *fault.Fault {
	return fault.New(fault.CodeRequest, "the ClientHello is malformed").Whyf(format, args...)
}
