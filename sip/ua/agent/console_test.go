// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// console runs one on the loopback; orders go to in, lines come from out, which has room for all of them: a console that waits
// for its reader obeys nobody.
func console(t *testing.T, name string, port uint16, call string) (in io.WriteCloser, out <-chan string, ended chan error) {
	t.Helper()
	a, err := agent.New(agent.Settings{
		UA:   ua.Settings{AOR: message.URI{Scheme: "sip", User: name, Host: "example.com"}},
		Port: port, Interfaces: []string{"lo"},
	})
	if err != nil {
		t.Fatal(err)
	}
	orders, in := io.Pipe()
	lines, written := io.Pipe()
	ended = make(chan error, 1)
	go func() {
		ended <- (&agent.Console{Agent: a, In: orders, Out: written, Call: call}).Run(t.Context())
		_ = written.Close()
	}()
	said := make(chan string, 1000)
	go func() {
		defer close(said)
		for scanner := bufio.NewScanner(lines); scanner.Scan(); {
			said <- scanner.Text()
		}
	}()
	return in, said, ended
}

// until reads lines until one has a text.
func until(t *testing.T, out <-chan string, text string) {
	t.Helper()
	var seen []string
	for line := range out {
		seen = append(seen, line)
		if strings.Contains(line, text) {
			return
		}
	}
	t.Fatalf("no line with %q in %q", text, seen)
}

func TestConsole(t *testing.T) {
	port := testutil.FreePort()
	bobIn, bobOut, bobEnded := console(t, "bob", port, "")
	order := func(in io.Writer, line string) {
		t.Helper()
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	order(bobIn, "status")
	until(t, bobOut, fmt.Sprintf("127.0.0.1:%d (lo)", port))
	order(bobIn, "dance")
	until(t, bobOut, "is no order")
	order(bobIn, "hold")
	until(t, bobOut, "no such call")
	aliceIn, aliceOut, aliceEnded := console(t, "alice", testutil.FreePort(), fmt.Sprintf("sip:bob@127.0.0.1:%d", port))
	until(t, bobOut, "incoming, sip:alice@example.com")
	order(bobIn, "answer")
	until(t, bobOut, "established")
	until(t, aliceOut, "established")
	order(aliceIn, "hold")
	until(t, aliceOut, "held")
	until(t, bobOut, "held_by_peer")
	order(aliceIn, "resume")
	until(t, aliceOut, "resumed")
	until(t, bobOut, "resumed_by_peer")
	order(aliceIn, "digits #")
	until(t, bobOut, "digit_began, #")
	until(t, bobOut, "digit_ended, #, ")
	order(bobIn, "hangup 1")
	until(t, aliceOut, "ended")
	order(aliceIn, "quit")
	if err := bobIn.Close(); err != nil {
		t.Fatal(err)
	}
	for _, ended := range []chan error{aliceEnded, bobEnded} {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(testutil.Patience):
			t.Fatal("it does not end")
		}
	}
}
