// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// names is the DNS of a cluster: it knows the IPv4 addresses of a few names, each given as NAME=ADDRESS.
func names(known []string) error {
	addresses := map[string]netip.Addr{}
	for _, text := range known {
		name, address, _ := strings.Cut(text, "=")
		a, err := netip.ParseAddr(address)
		if err != nil {
			return err
		}
		addresses[name+"."] = a
	}
	conn, err := net.ListenPacket("udp", ":53")
	if err != nil {
		return err
	}
	defer conn.Close()
	buffer := make([]byte, 1500)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return err
		}
		var m dnsmessage.Message
		if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Additionals = true, nil
		name := m.Questions[0].Name
		a, ok := addresses[name.String()]
		if !ok {
			m.RCode = dnsmessage.RCodeNameError
		} else if m.Questions[0].Type == dnsmessage.TypeA {
			m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET},
				Body: &dnsmessage.AResource{A: a.As4()}}}
		}
		fmt.Println(m.Questions[0].Type, name, a)
		answer, err := m.Pack()
		if err != nil {
			return err
		}
		if _, err := conn.WriteTo(answer, from); err != nil {
			return err
		}
	}
}
