// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"encoding/hex"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/sip/registrar"
)

// TestKeepAlives are answered on connections by a line end, and over UDP by STUN (RFC 5626 section 4.4).
func TestKeepAlives(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	tcp := w.phone("alice", "TCP", server6, 1)
	tcp.raw("\r\n\r\n")
	pong := make([]byte, 2)
	if _, err := tcp.conn.Read(pong); err != nil || string(pong) != "\r\n" {
		t.Errorf("%q, %v", pong, err)
	}
	tcp.mustRegister()
	udp := w.phone("alice", "UDP", server4, 1)
	udp.raw("\r\n\r\n")
	request, _ := hex.DecodeString("000100002112a442b7e7a701bc34d686fa87dfae")
	udp.raw(string(request))
	answer := make([]byte, 100)
	if n, err := udp.conn.Read(answer); err != nil || n != 32 || answer[0] != 1 || answer[1] != 1 {
		t.Errorf("%x, %v", answer[:n], err)
	}
	s.await(t, "keep_alives_total", "", 3)
}

// TestSlowMessages closes connections on which a message takes too long, whatever comes of it, and
// such as begin no TLS; others are served meanwhile.
func TestSlowMessages(t *testing.T) {
	configtest.InEffect(t, "registrar", "message_timeout")
	w := newWorld(t)
	s := w.serve(`message_timeout = "300ms"`)
	drip := w.phone("alice", "TCP", server6, 1)
	stop := make(chan struct{})
	go func() {
		for _, c := range "REGISTER sip:example.net SIP/2.0\r\nVia: " + strings.Repeat("x", 10_000) {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				if _, err := drip.conn.Write([]byte(string(c))); err != nil {
					return
				}
			}
		}
	}()
	w.phone("bob", "TCP", server6, 2).mustRegister()
	drip.closed()
	close(stop)
	s.await(t, "connections_ended_total", "slow_message", 1)
	var mute net.Conn
	w.ns.Do(t, func() (err error) { mute, err = net.Dial("tcp", "[2001:db8::5]:5061"); return err })
	(&phone{t: t, conn: mute}).closed()
	s.await(t, "connections_ended_total", "tls", 1)
}

// TestIdle closes connections on which nothing comes.
func TestIdle(t *testing.T) {
	configtest.InEffect(t, "registrar", "idle_timeout")
	w := newWorld(t)
	s := w.serve(`idle_timeout = "1s"`)
	w.phone("alice", "TCP", server6, 1).closed()
	s.await(t, "connections_ended_total", "idle", 1)
	s.await(t, "connections", "", 0)
}

// TestConnectionsOfOneSource are bounded: the one that was idle longest gives way, and the
// connections of others stay.
func TestConnectionsOfOneSource(t *testing.T) {
	configtest.InEffect(t, "registrar", "max_connections", "connections_per_source")
	w := newWorld(t)
	s := w.serve("max_connections = 6\nconnections_per_source = 4")
	bob := w.phone("bob", "TCP", server4, 2)
	bob.mustRegister()
	for range 50 {
		w.phone("alice", "TCP", server4, 1)
	}
	eventually(t, "the flood is refused", func() bool {
		return s.value("connections_ended_total", "full")+s.value("connections_ended_total", "gave_way") >= 46
	})
	if n := s.value("connections", ""); n > 5 {
		t.Errorf("%v connections", n)
	}
	for _, at := range []int{3, 4} {
		w.phone("carol", "TCP", server4, at).mustRegister()
	}
	bob.mustRegister()
	w.reload(s, "max_connections = 1\nconnections_per_source = 1")
	eventually(t, "all but one end", func() bool { return s.value("connections", "") <= 1 })
}

// TestSlowReader loses its connection rather than that it holds up the proxy.
func TestSlowReader(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	p := w.phone("alice", "TCP", server6, 1)
	_ = p.conn.SetWriteDeadline(time.Now().Add(patience))
	one := string(p.request("OPTIONS", "sip:example.net", "X-Padding: "+strings.Repeat("x", 1000)).Append(nil))
	// The tag of the sender comes back in each answer.
	one = strings.Replace(one, ";tag=", ";p="+strings.Repeat("x", 10_000)+";tag=", 1)
	for {
		if _, err := p.conn.Write([]byte(one)); err != nil {
			break
		}
	}
	eventually(t, "the connection ends", func() bool {
		return s.value("connections_ended_total", "slow_reader")+s.value("connections_ended_total", "send_failed") > 0
	})
	w.phone("bob", "TCP", server6, 2).mustRegister()
}

// TestBrokenStream answers what ends a stream, and ends it.
func TestBrokenStream(t *testing.T) {
	w := newWorld(t)
	s := w.serve("")
	p := w.phone("alice", "TCP", server6, 1)
	p.raw(strings.Replace(p.request("OPTIONS", "sip:example.net").String(), "Content-Length: 0", "Content-Length: 1000000", 1))
	if text := p.closed(); !strings.HasPrefix(text, "SIP/2.0 4") && !strings.HasPrefix(text, "SIP/2.0 5") {
		t.Errorf("the answer is %q", text)
	}
	p = w.phone("alice", "TCP", server6, 1)
	go func() { _, _ = p.conn.Write([]byte(strings.Repeat("no end of this line ", 10_000))) }()
	p.closed()
	if n := s.value("dropped_total", "too_large"); n != 1 {
		t.Errorf("%v were too large", n)
	}
}

// TestRates drops datagrams of a source that is too fast, and reads its connections later; others are
// served, and proxies beside this one have no limit.
func TestRates(t *testing.T) {
	configtest.InEffect(t, "registrar", "rate_per_source", "burst")
	w := newWorld(t)
	s := w.serve("rate_per_source = 10\nburst = 3\ntrusted = [\"192.0.2.3\"]")
	fast := w.phone("alice", "UDP", server4, 1)
	eventually(t, "some are dropped", func() bool {
		for range 30 {
			fast.send(fast.request("OPTIONS", "sip:example.net"))
		}
		return s.value("dropped_total", "rate_limit") > 10
	})
	w.phone("bob", "UDP", server4, 2).mustRegister()
	trusted := w.phone("carol", "UDP", server4, 3)
	for range 30 {
		trusted.send(trusted.request("OPTIONS", "sip:example.net"))
	}
	for range 30 {
		trusted.expect("200")
	}
	stream := w.phone("alice", "TCP", server6, 1)
	for range 6 {
		stream.send(stream.request("OPTIONS", "sip:example.net"))
	}
	for range 6 {
		stream.expect("200")
	}
	if s.value("connections_delayed_total", "") == 0 {
		t.Error("the connection was read at once")
	}
	// What comes while nobody can read it is lost in the kernel, and counted.
	s.do(func(*registrar.Proxy, time.Time, *registrar.Output) {
		for i := 0; i < 50_000 && s.sockets.stats().ReadFull == 0; i++ {
			_, _ = fast.conn.Write(make([]byte, 1000))
		}
	})
	if s.value("dropped_total", "udp_receive_full") == 0 || s.Status().(Status).Unread == 0 {
		t.Error("nothing is counted that the kernel has dropped")
	}
}
