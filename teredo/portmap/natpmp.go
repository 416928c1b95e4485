// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	natpmp "github.com/jackpal/go-nat-pmp"
)

const (
	// lease is what RFC 6886 section 3.3 recommends to ask for.
	lease = 2 * time.Hour
	// leastLease keeps a gateway from making us ask without pause.
	leastLease = 2 * time.Minute
)

// natpmpGateway speaks NAT-PMP (RFC 6886). Its library sends from a connected
// socket, so that the kernel drops what others answer, and takes 16 bytes at
// most.
type natpmpGateway struct{ target Target }

func (g natpmpGateway) method() Method { return NATPMP }

// client makes a client whose questions end with ctx.
func (g natpmpGateway) client(ctx context.Context) *natpmp.Client {
	wait := g.target.limits().question
	if end, ok := ctx.Deadline(); ok {
		// The library takes 0 for two minutes.
		wait = max(min(wait, time.Until(end)), time.Millisecond)
	}
	return natpmp.NewClientWithLocalAndTimeout(g.target.Gateway.AsSlice(), g.target.Local.Addr().AsSlice(), wait)
}

// add reserves the port. The gateway may choose another external one.
func (g natpmpGateway) add(ctx context.Context) (Mapping, error) {
	c := g.client(ctx)
	port := int(g.target.Local.Port())
	got, err := c.AddPortMapping("udp", port, port, int(lease/time.Second))
	if err != nil {
		return Mapping{}, natpmpError(err)
	}
	address, err := c.GetExternalAddress()
	if err == nil && got.InternalPort != g.target.Local.Port() {
		err = errAnswer
	}
	m := Mapping{Method: NATPMP, Lifetime: min(time.Duration(got.PortMappingLifetimeInSeconds)*time.Second, lease)}
	if err == nil {
		m.External, err = external(netip.AddrFrom4(address.ExternalIPAddress), got.MappedExternalPort)
	}
	if err == nil && m.Lifetime < leastLease {
		err = fmt.Errorf("%w: a reservation for %v", errAnswer, m.Lifetime)
	}
	if err != nil {
		// Whether this works changes nothing any more.
		_ = g.remove(context.WithoutCancel(ctx), g.target.Local.Port())
		return Mapping{}, natpmpError(err)
	}
	return m, nil
}

// remove gives a port back (RFC 6886 section 3.4): it is named by its internal
// number.
func (g natpmpGateway) remove(ctx context.Context, port uint16) error {
	if _, err := g.client(ctx).AddPortMapping("udp", int(port), 0, 0); err != nil {
		return natpmpError(err)
	}
	return nil
}

// natpmpError puts an error of the library in our words.
func natpmpError(err error) error {
	var network net.Error
	var code int
	switch {
	case errors.Is(err, errAnswer):
		return err
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &network),
		err.Error() == "Timed out trying to contact gateway":
		return fmt.Errorf("%w (%s)", ErrNoGateway, NATPMP)
	}
	if _, e := fmt.Sscanf(err.Error(), "Non-zero result code %d", &code); e == nil {
		return refused{NATPMP, code}
	}
	return fmt.Errorf("%w (%s)", errAnswer, NATPMP)
}
