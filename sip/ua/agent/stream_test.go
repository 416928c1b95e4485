// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
	"github.com/isthmus-net/isthmus/sip/ua/agent"
)

// Requests that come by TCP one after another are answered, and so is the one behind which no other
// can be found; then the connection ends.
func TestStream(t *testing.T) {
	port := testutil.FreePort()
	a, err := agent.New(agent.Settings{UA: ua.Settings{AOR: message.URI{Scheme: "sip", User: "bob", Host: "example.com"}}, Port: port, Interfaces: []string{"lo"}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, a)
	if _, err := a.State(t.Context()); err != nil { // its sockets are there
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	options := "OPTIONS sip:bob@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bK1\r\nMax-Forwards: 70\r\n" +
		"From: <sip:a@example.com>;tag=1\r\nTo: <sip:bob@example.com>\r\nCall-ID: 1\r\nCSeq: 1 OPTIONS\r\n"
	again := strings.ReplaceAll(options, "z9hG4bK1", "z9hG4bK2")
	if _, err := io.WriteString(conn, options+"Content-Length: 0\r\n\r\n"+again+"\r\n"); err != nil {
		t.Fatal(err)
	}
	answers, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SIP/2.0 200 OK\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bK1\r\n", "SIP/2.0 400 Bad Content-Length\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bK2\r\n"} {
		if !strings.Contains(string(answers), want) {
			t.Errorf("no %q in\n%s", want, answers)
		}
	}
}

// What is answered when its connection has ended comes by another, to the port that the caller has named
// (RFC 3261 section 18.2.2).
func TestAnswerWithoutConnection(t *testing.T) {
	port := testutil.FreePort()
	a, err := agent.New(agent.Settings{UA: ua.Settings{AOR: message.URI{Scheme: "sip", User: "bob", Host: "example.com"}}, Port: port, Interfaces: []string{"lo"}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, a)
	if _, err := a.State(t.Context()); err != nil { // its sockets are there
		t.Fatal(err)
	}
	caller, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(conn, "INVITE sip:bob@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP "+caller.Addr().String()+";branch=z9hG4bK1\r\nMax-Forwards: 70\r\n"+
		"From: <sip:a@example.com>;tag=1\r\nTo: <sip:bob@example.com>\r\nCall-ID: 1\r\nCSeq: 1 INVITE\r\nContact: <sip:a@"+caller.Addr().String()+">\r\nContent-Length: 0\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	call := await(t, a, ua.Incoming).Call
	_ = conn.Close()
	if err := a.Answer(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	_ = caller.SetDeadline(time.Now().Add(testutil.Patience))
	conn, err = caller.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "SIP/2.0 200 OK\r\n" {
		t.Errorf("%q, %v", line, err)
	}
}
