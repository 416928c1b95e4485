// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io"
	"strings"
	"testing"

	"github.com/isthmus-net/isthmus/internal/control"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// A telephone says what a daemon of its host tells of an address, by the control socket.
func TestTelephoneHearsOfAddresses(t *testing.T) {
	a, err := agent.New(agent.Settings{
		UA:   ua.Settings{AOR: message.URI{Scheme: "sip", User: "alice", Host: "example.com"}},
		Port: 15078, Interfaces: []string{"lo"},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines, written := io.Pipe()
	orders, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- (&agent.Console{Agent: a, In: orders, Out: written}).Run(t.Context())
		_ = written.Close()
	}()
	go followAddresses(t.Context(), control.NewClient(serveTold(t)), a.AddressChanged)
	const want = "address 2001:0:c000:201::1 of teredo on standby: qualified"
	heard := false
	for out := bufio.NewScanner(lines); out.Scan(); {
		if !heard && strings.Contains(out.Text(), want) {
			heard = true
			go func() { _, _ = io.WriteString(in, "quit\n") }()
		}
	}
	if err := <-ended; err != nil || !heard {
		t.Errorf("heard %v, error %v", heard, err)
	}
}
