// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Choices of the echo client.
const (
	defaultPingInterval = 200 * time.Millisecond
	defaultPingTimeout  = time.Second
	defaultPingSize     = 56
	echoHeader          = 8
	maxPingSize         = 65000
)

// ICMP types of echo (RFC 792, RFC 4443 sections 4.1 and 4.2).
const (
	echoRequest4, echoReply4 = 8, 0
	echoRequest6, echoReply6 = 128, 129
)

// Ping says what to send to whom.
type Ping struct {
	To netip.Addr
	// From is the source address, chosen by the kernel if not valid.
	From netip.Addr
	// Device is the interface by which requests leave, the kernel's choice if empty.
	Device string
	// Count of requests, 1 if 0.
	Count int
	// Interval between requests, 200 ms if 0.
	Interval time.Duration
	// Timeout after the last request, 1 s if 0.
	Timeout time.Duration
	// Size of the data behind the ICMP header in bytes, 56 if 0.
	Size int
}

// PingResult is what became of the requests.
type PingResult struct {
	// RTT holds the round-trip time of each request in the order sent,
	// negative if no answer came.
	RTT []time.Duration
	// FirstSent is when the first request was sent.
	FirstSent time.Time
	// Overruns is how many frames and ICMP messages, of anybody, this machine dropped
	// meanwhile for want of room: a loss then need not be the network's.
	Overruns uint64
}

// Sent is the number of requests.
func (r PingResult) Sent() int { return len(r.RTT) }

// Received is the number of requests that were answered.
func (r PingResult) Received() int { return len(r.answered()) }

// Lost is the number of requests without an answer.
func (r PingResult) Lost() int { return r.Sent() - r.Received() }

// First is the round-trip time of the first request, negative if it was lost.
func (r PingResult) First() time.Duration {
	if len(r.RTT) == 0 {
		return -1
	}
	return r.RTT[0]
}

func (r PingResult) answered() []time.Duration {
	var times []time.Duration
	for _, t := range r.RTT {
		if t >= 0 {
			times = append(times, t)
		}
	}
	return times
}

// Median is the median round-trip time of the answered requests, 0 if none.
func (r PingResult) Median() time.Duration {
	times := r.answered()
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	middle := len(times) / 2
	if len(times)%2 == 1 {
		return times[middle]
	}
	return (times[middle-1] + times[middle]) / 2
}

// Mean gives mean and standard deviation of the answered requests.
func (r PingResult) Mean() (mean, deviation time.Duration) {
	times := r.answered()
	if len(times) == 0 {
		return 0, 0
	}
	var sum, squares float64
	for _, t := range times {
		sum += float64(t)
	}
	m := sum / float64(len(times))
	for _, t := range times {
		squares += (float64(t) - m) * (float64(t) - m)
	}
	return time.Duration(m), time.Duration(math.Sqrt(squares / float64(len(times))))
}

// Ping sends echo requests from the node, paced by the clock and not by the
// answers, and gives what came back. No answer is a result, not an error;
// that the kernel refuses to send (no route, say) counts as no answer too.
func (n *Node) Ping(ctx context.Context, p Ping) (PingResult, error) {
	p = p.complete()
	if p.Size > maxPingSize {
		return PingResult{}, fmt.Errorf("a ping of %d bytes is too large: the limit is %d", p.Size, maxPingSize)
	}
	var conn *net.IPConn
	err := n.Do(func() (err error) { conn, err = p.listen(); return err })
	if err != nil {
		return PingResult{}, fmt.Errorf("cannot ping from node %s: %w", n.name, err)
	}
	defer conn.Close()
	run := &pingRun{Ping: p, conn: conn, id: uint16(rand.Uint32())}
	before := n.lab.overruns()
	r, err := run.run(ctx)
	r.Overruns = n.lab.overruns() - before
	return r, err
}

func (p Ping) complete() Ping {
	p.Count = max(p.Count, 1)
	if p.Interval <= 0 {
		p.Interval = defaultPingInterval
	}
	if p.Timeout <= 0 {
		p.Timeout = defaultPingTimeout
	}
	if p.Size <= 0 {
		p.Size = defaultPingSize
	}
	return p
}

// listen opens a raw ICMP socket with receive times of the kernel, so that
// the load of this process does not count as network delay.
func (p Ping) listen() (*net.IPConn, error) {
	network := "ip6:ipv6-icmp"
	if p.To.Is4() {
		network = "ip4:icmp"
	}
	var local *net.IPAddr
	if p.From.IsValid() {
		local = &net.IPAddr{IP: p.From.AsSlice(), Zone: p.From.Zone()}
	}
	conn, err := net.ListenIP(network, local)
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		conn.Close()
		return nil, err
	}
	var optErr error
	err = raw.Control(func(fd uintptr) {
		optErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		if p.Device != "" {
			optErr = errors.Join(optErr, unix.BindToDevice(int(fd), p.Device))
		}
	})
	if err = errors.Join(err, optErr); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// pingRun is one Ping under way.
type pingRun struct {
	Ping
	conn *net.IPConn
	id   uint16
	sent []time.Time // wall clock, which the kernel's receive times use
}

type pingAnswer struct {
	sequence int
	at       time.Time
}

func (r *pingRun) run(ctx context.Context) (PingResult, error) {
	answers := make(chan pingAnswer, r.Count)
	go r.receive(answers)
	result := PingResult{RTT: slices.Repeat([]time.Duration{-1}, r.Count)}
	r.sent = make([]time.Time, 0, r.Count)
	missing := r.Count
	next := time.NewTimer(0)
	defer next.Stop()
	start := time.Now()
	for missing > 0 {
		select {
		case <-ctx.Done():
			return result, ctx.Err()
		case a := <-answers:
			missing -= r.note(a, &result)
		case <-next.C:
			if len(r.sent) == r.Count {
				// What came in time may still be unread, if this process was kept waiting.
				if err := r.conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
					return result, err
				}
				for a := range answers {
					r.note(a, &result)
				}
				return result, nil
			}
			if err := r.send(); err != nil {
				return result, err
			}
			result.FirstSent = r.sent[0]
			wait := time.Until(start.Add(time.Duration(len(r.sent)) * r.Interval))
			if len(r.sent) == r.Count {
				wait = r.Timeout
			}
			next.Reset(wait)
		}
	}
	return result, nil
}

// note puts an answer into the result and gives how many are new: 1 or 0.
func (r *pingRun) note(a pingAnswer, result *PingResult) int {
	if a.sequence >= len(r.sent) || result.RTT[a.sequence] >= 0 {
		return 0
	}
	result.RTT[a.sequence] = max(a.at.Sub(r.sent[a.sequence]), 0)
	return 1
}

// send sends the next request. Errors of the network are losses.
func (r *pingRun) send() error {
	b := make([]byte, echoHeader+r.Size)
	b[0] = echoRequest6
	if r.To.Is4() {
		b[0] = echoRequest4
	}
	binary.BigEndian.PutUint16(b[4:], r.id)
	binary.BigEndian.PutUint16(b[6:], uint16(len(r.sent)))
	for i := echoHeader; i < len(b); i++ {
		b[i] = byte(i)
	}
	if r.To.Is4() {
		binary.BigEndian.PutUint16(b[2:], internetChecksum(b)) // the kernel fills in ICMPv6's
	}
	to := &net.IPAddr{IP: r.To.AsSlice(), Zone: r.To.Zone()}
	r.sent = append(r.sent, time.Now().Round(0))
	_, err := r.conn.WriteToIP(b, to)
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return nil
	}
	return err
}

// receive reports answers to our requests until the socket is closed, or until the
// read deadline: then it takes what is still queued.
func (r *pingRun) receive(answers chan<- pingAnswer) {
	defer close(answers)
	buf, oob := make([]byte, 1<<16), make([]byte, 128)
	for {
		n, oobn, _, from, err := r.conn.ReadMsgIP(buf, oob)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			r.drain(buf, oob, answers)
			return
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			continue // an ICMP error for one of our requests
		}
		source, _ := netip.AddrFromSlice(from.IP)
		r.take(buf[:n], oob[:oobn], source, answers)
	}
}

// drain takes what the socket holds, without waiting for more.
func (r *pingRun) drain(buf, oob []byte, answers chan<- pingAnswer) {
	raw, err := r.conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		for {
			n, oobn, _, from, err := unix.Recvmsg(int(fd), buf, oob, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EBADF) {
				return
			}
			if err != nil {
				continue // an ICMP error for one of our requests, which reading takes away
			}
			switch a := from.(type) {
			case *unix.SockaddrInet4:
				r.take(buf[:n], oob[:oobn], netip.AddrFrom4(a.Addr), answers)
			case *unix.SockaddrInet6:
				r.take(buf[:n], oob[:oobn], netip.AddrFrom16(a.Addr), answers)
			}
		}
	})
}

// take reports a packet if it answers one of our requests.
func (r *pingRun) take(b, oob []byte, source netip.Addr, answers chan<- pingAnswer) {
	reply := byte(echoReply6)
	if r.To.Is4() {
		reply, b = echoReply4, skipIPv4Header(b)
	}
	if len(b) < echoHeader || b[0] != reply || binary.BigEndian.Uint16(b[4:]) != r.id || source.Unmap() != r.To.WithZone("") {
		return
	}
	select {
	case answers <- pingAnswer{int(binary.BigEndian.Uint16(b[6:])), receiveTime(oob)}:
	default: // more answers than requests: duplicates
	}
}

// skipIPv4Header drops the header that raw IPv4 sockets show.
func skipIPv4Header(b []byte) []byte {
	if len(b) < 20 || b[0]>>4 != 4 {
		return nil
	}
	return b[min(int(b[0]&15)*4, len(b)):]
}

// receiveTime reads the kernel's receive time from control messages.
func receiveTime(oob []byte) time.Time {
	if b := controlMessage(oob, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS); len(b) >= 16 {
		return time.Unix(int64(binary.NativeEndian.Uint64(b)), int64(binary.NativeEndian.Uint64(b[8:])))
	}
	return time.Now().Round(0)
}

// controlMessage returns what the first control message of a kind holds, nil if there is none.
func controlMessage(oob []byte, level, kind int32) []byte {
	for len(oob) >= unix.CmsgLen(0) {
		header, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		switch {
		case err != nil:
			return nil
		case header.Level == level && header.Type == kind:
			return data
		}
		oob = rest
	}
	return nil
}

// internetChecksum is that of RFC 1071 over b, whose checksum field is zero.
func internetChecksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
