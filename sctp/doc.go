// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

// Package sctp is the Stream Control Transmission Protocol (RFC 9260) in the manner of package
// net: associations between hosts that each have several addresses, of IPv4 and IPv6 at once. When
// a network fails, an association goes on by another one. It needs no SCTP in the kernel.
//
// # Networks
//
// "sctp" sends packets of IP, by raw sockets, and needs CAP_NET_RAW. "sctp+udp" puts them into UDP
// (RFC 6951) and needs no privilege; it is also what passes most NATs and firewalls. sctp4, sctp6,
// sctp4+udp and sctp6+udp are of one family of addresses. Both ends must use the same.
//
// An address is that of all of a host, "host/host:port", as [Addr] says: "192.0.2.1:5000",
// "[2001:db8:1::1]/[2001:db8:2::1]:5000".
//
// # A multihomed echo
//
// The server listens by all addresses that its host has, and tells its clients of them:
//
//	l, err := sctp.Listen("sctp+udp", ":5000")
//	if err != nil {
//		log.Fatal(err)
//	}
//	for {
//		c, err := l.Accept()
//		if err != nil {
//			log.Fatal(err)
//		}
//		go func() {
//			defer c.Close()
//			io.Copy(c, c)
//		}()
//	}
//
// The client needs to know one of these addresses; the association has a path from each of the
// client's to each of the server's:
//
//	c, err := sctp.Dial("sctp+udp", "server.example:5000")
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer c.Close()
//	fmt.Fprintln(c, "hello")
//	fmt.Println(bufio.NewReader(c).ReadString('\n'))
//
// That is all: heartbeats watch the paths, data leaves one that fails, and comes back when it works
// again. [Conn.Status] shows them, and [Conn.Events] tells of changes. Addresses that the host
// gains or loses meanwhile, and links that go down, are followed. To see it, take the link down by
// which the packets go.
//
// # Messages and streams
//
// A [Conn] is a net.Conn. Beyond that SCTP sends messages, by several streams, of which none waits
// for the losses of another; not in order, if that is wished; and not for ever:
//
//	err := c.WriteMessage(frame, sctp.Message{Stream: 3, Unordered: true, Lifetime: 200 * time.Millisecond})
//	n, info, err := c.ReadMessage(buffer)
//
// # Parameters
//
// [Parameters] begin as the RFCs recommend. They are set for all associations of an endpoint by
// [Config], for one that lives by [Conn.SetParameters] and for a path of it by
// [Conn.SetPathParameters]. RTO.Min decides how soon a loss is noticed, Path.Max.Retrans when a path
// is given up, HB.Interval when it is noticed that it works again.
//
// # Closing
//
// [Conn.Close] returns at once; what was written is delivered behind it, before the association
// ends. [Conn.Shutdown] waits for that. [Conn.CloseWrite] says that nothing more is to come, and
// goes on to read; other than with TCP the peer then finishes what it was sending, too, and begins
// nothing new (RFC 9260 section 9.2). [Conn.Abort] ends everything at once.
//
// # Sockets
//
// The sockets of an endpoint live in the network namespace of the thread that opens it. One
// goroutine for each reads; a reader or writer of one association that is slow stops no other.
//
//house:edge
package sctp
