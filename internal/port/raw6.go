// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package port

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/packet"
)

// Raw6 sends whole IPv6 packets, header included, by the host's routes. The
// kernel changes nothing in them, the hop limit included.
type Raw6 struct {
	counters
	guard guard
	out   pool[rawSender]
	// tooBig, if set, sees each packet that the kernel refused for its size. It may not keep it.
	tooBig func(p []byte)
}

// rawSender is one writer's scratch space.
type rawSender struct {
	hdrs  [MaxBatch]mmsghdr
	names [MaxBatch]unix.RawSockaddrInet6
	iovs  [MaxBatch]unix.Iovec
}

// OpenRaw6 opens the socket in the calling thread's network namespace.
func OpenRaw6() (*Raw6, error) {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return nil, fmt.Errorf("no permission to open a raw IPv6 socket: run as root or with CAP_NET_RAW: %w", err)
	case errors.Is(err, unix.EAFNOSUPPORT):
		return nil, fmt.Errorf("this kernel has no IPv6: boot without ipv6.disable=1: %w", err)
	case err != nil:
		return nil, fmt.Errorf("cannot open a raw IPv6 socket: %w", err)
	}
	setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, defaultBuffer)
	// A socket of protocol IPPROTO_RAW receives nothing, so it needs no filter.
	r := &Raw6{guard: guard{fd: fd}}
	r.out.make = newRawSender
	return r, nil
}

// OpenRaw6On is OpenRaw6 for what leaves by one link: there also multicast and
// link-local destinations can be reached.
func OpenRaw6On(link string) (*Raw6, error) {
	r, err := OpenRaw6()
	if err != nil {
		return nil, err
	}
	if err := unix.BindToDevice(r.guard.fd, link); err != nil {
		r.guard.release()
		return nil, fmt.Errorf("cannot send by %s alone: %w", link, err)
	}
	return r, nil
}

// newRawSender prepares what does not change from call to call.
func newRawSender() *rawSender {
	s := new(rawSender)
	for i := range s.hdrs {
		h := &s.hdrs[i].hdr
		h.Name = (*byte)(unsafe.Pointer(&s.names[i]))
		h.Namelen = unix.SizeofSockaddrInet6
		s.names[i].Family = unix.AF_INET6
		h.Iov = &s.iovs[i]
		h.SetIovlen(1)
	}
	return s
}

// WriteBatch sends packets to the destinations in their headers. What is too
// short for an IPv6 header, or refused by the kernel, is counted.
func (r *Raw6) WriteBatch(pkts [][]byte) error {
	if !r.guard.enter() {
		return ErrClosed
	}
	defer r.guard.leave()
	s := r.out.get()
	defer r.out.put(s)
	for len(pkts) > 0 {
		n := 0
		for n < MaxBatch && len(pkts) > 0 {
			p := pkts[0]
			pkts = pkts[1:]
			if len(p) < packet.IPv6HeaderLen {
				r.writeFailed.Add(1)
				continue
			}
			copy(s.names[n].Addr[:], p[24:40])
			s.iovs[n].Base = &p[0]
			s.iovs[n].SetLen(len(p))
			n++
		}
		r.send(s.hdrs[:n])
	}
	return nil
}

// send sends what is loaded, passing over what the kernel refuses.
func (r *Raw6) send(hdrs []mmsghdr) {
	for len(hdrs) > 0 {
		n, errno := sendmmsg(r.guard.fd, hdrs)
		r.writeCalls.Add(1)
		for i := range hdrs[:n] {
			r.sent(1, int(hdrs[i].n))
		}
		hdrs = hdrs[n:]
		if errno != 0 && errno != unix.EINTR {
			r.refused(1, errno)
			if errno == unix.EMSGSIZE && r.tooBig != nil {
				iov := hdrs[0].hdr.Iov
				r.tooBig(unsafe.Slice(iov.Base, iov.Len))
			}
			hdrs = hdrs[1:]
		}
	}
}

// Close implements io.Closer.
func (r *Raw6) Close() error {
	r.guard.close(func() {})
	return nil
}
