// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/isthmus-net/isthmus/sctp"
)

// config lets the examples run beside each other. Programs that have the host to themselves need none: sctp.Listen and
// sctp.Dial use port 9899 of UDP.
var config = &sctp.Config{UDPPort: sctp.AnyPort}

// An echo over UDP: no privilege is needed.
func Example() {
	l, err := config.Listen(context.Background(), "sctp+udp", "[::1]:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go serveEcho(l)

	c, err := sctp.Dial("sctp+udp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintln(c, "hello")
	line, err := bufio.NewReader(c).ReadString('\n')
	fmt.Printf("%q %v\n", line, err)
	// Output: "hello\n" <nil>
}

func serveEcho(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // the listener is closed
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c)
		}()
	}
}

// A server with three addresses, of both families. Its client dials all of them, though one would do: the server names
// the others when the association is set up. There is a path to each, and data goes by the one that is preferred, as
// long as it works.
func Example_multihomed() {
	l, err := config.Listen(context.Background(), "sctp+udp", "127.0.0.1/127.0.0.2/[::1]:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go serveEcho(l)

	c, err := sctp.Dial("sctp+udp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	for _, path := range c.Status().Paths {
		fmt.Println(path.Remote, path.State)
		if err := c.SetPrimary(path.Pair); err != nil {
			log.Fatal(err)
		}
		fmt.Fprint(c, "hello")
		answer := make([]byte, 5)
		if _, err := io.ReadFull(c, answer); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s by %s\n", answer, c.Status().Current.Remote)
	}
	// Output:
	// 127.0.0.1 active
	// hello by 127.0.0.1
	// 127.0.0.2 active
	// hello by 127.0.0.2
	// ::1 active
	// hello by ::1
}

// Messages with their own stream, payload protocol identifier, order and life.
func ExampleConn_WriteMessage() {
	l, err := config.Listen(context.Background(), "sctp+udp", "[::1]:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	c, err := sctp.Dial("sctp+udp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	messages := []sctp.Message{
		{Stream: 0, PPID: 46},
		{Stream: 3, PPID: 46, Unordered: true},
		{Stream: 5, PPID: 51, Lifetime: 200 * time.Millisecond, Tries: 2, Immediate: true},
	}
	for i, m := range messages {
		if err := c.WriteMessage(fmt.Appendf(nil, "message %d", i), m); err != nil {
			log.Fatal(err)
		}
	}

	s, err := l.AcceptSCTP(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	buffer := make([]byte, 1500)
	for range messages {
		n, info, err := s.ReadMessage(buffer)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: stream %d, PPID %d, unordered %t\n", buffer[:n], info.Stream, info.PPID, info.Unordered)
	}
	// Output:
	// message 0: stream 0, PPID 46, unordered false
	// message 1: stream 3, PPID 46, unordered true
	// message 2: stream 5, PPID 51, unordered false
}

// Parameters of an association that lives: of all its paths, and then of one.
func ExampleConn_SetParameters() {
	l, err := config.Listen(context.Background(), "sctp+udp", "127.0.0.1/127.0.0.2:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	c, err := sctp.Dial("sctp+udp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	p := c.Parameters()
	p.RTOMin, p.RTOMax = 200*time.Millisecond, 2*time.Second
	p.PathMaxRetrans, p.AssociationMaxRetrans = 2, 6
	p.SACKDelay = 40 * time.Millisecond
	if err := c.SetParameters(p); err != nil {
		log.Fatal(err)
	}
	second := c.Status().Paths[1].Pair
	p.HeartbeatInterval = 5 * time.Second
	if err := c.SetPathParameters(second, p.PathParameters); err != nil {
		log.Fatal(err)
	}
	for _, path := range c.Status().Paths {
		fmt.Println(path.Remote, path.Parameters.RTOMin, path.Parameters.PathMaxRetrans, path.Parameters.HeartbeatInterval)
	}
	// Output:
	// 127.0.0.1 200ms 2 30s
	// 127.0.0.2 200ms 2 5s
}

// Many associations by one port, from addresses of one's choice.
func ExampleConfig_Open() {
	var servers []*sctp.Listener
	for range 3 {
		l, err := config.Listen(context.Background(), "sctp+udp", "127.0.0.1:0")
		if err != nil {
			log.Fatal(err)
		}
		defer l.Close()
		servers = append(servers, l)
	}
	e, err := config.Open(context.Background(), "sctp+udp", "127.0.0.1/127.0.0.2:6000")
	if err != nil {
		log.Fatal(err)
	}
	defer e.Close()
	for _, l := range servers {
		c, err := e.Dial(context.Background(), l.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		s, err := l.AcceptSCTP(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		client := s.RemoteAddr().(*sctp.Addr)
		fmt.Println(client.Hosts, client.Port)
	}
	fmt.Println(e.Stats().Associations, "associations")
	// Output:
	// [127.0.0.1 127.0.0.2] 6000
	// [127.0.0.1 127.0.0.2] 6000
	// [127.0.0.1 127.0.0.2] 6000
	// 3 associations
}

// A Listener is a net.Listener and a Conn a net.Conn: HTTP over SCTP.
func ExampleListener() {
	l, err := config.Listen(context.Background(), "sctp+udp", "[::1]:0")
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s over %s", r.URL.Path, l.Addr().Network())
	})}
	defer server.Close()
	go server.Serve(l)

	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(sctp.Config).Dial(ctx, "sctp+udp", l.Addr().String())
	}}}
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://server.example/hello")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	fmt.Printf("%s %v\n", text, err)
	// Output: /hello over sctp+udp <nil>
}
