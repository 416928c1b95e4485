// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
)

const (
	// maxBody bounds an answer by HTTP, in bytes: descriptions of real gateways
	// have some 5 KB.
	maxBody = 256 << 10
	// maxHeader bounds the header of an answer, in bytes.
	maxHeader = 16 << 10
)

var errTooLarge = errors.New("the gateway's answer is too large")

// guard is an HTTP client that talks to one gateway only: it opens connections
// to no other address, follows no redirection, uses no proxy, keeps no
// connection, and ends answers that are too long or too slow.
func guard(t Target) http.Client {
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.Local.Addr(), 0)), Timeout: t.limits().request}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			to, err := netip.ParseAddrPort(address)
			if err != nil || to.Addr() != t.Gateway {
				return nil, errors.New("the gateway names another host, which is not contacted")
			}
			return dialer.DialContext(ctx, network, address)
		},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
	return http.Client{
		Transport:     bounded{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       t.limits().request,
	}
}

// bounded bounds the bodies of answers.
type bounded struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &boundedBody{answer.Body, maxBody}
	}
	return answer, err
}

// boundedBody ends in an error behind so many bytes.
type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
