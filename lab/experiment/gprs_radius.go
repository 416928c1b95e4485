// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/md5"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/packet"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/report"
)

// Contexts of a run that come in by RADIUS.
const (
	authenticatedMany = 20_000
	authenticatedFew  = 500 // in the short form
)

// authenticatedRates measures how many contexts our GGSN creates if a RADIUS server is asked for each, and if it is told
// of each as well.
func authenticatedRates(ctx context.Context, e *lab.Env, rep *report.Report) error {
	runs, many := cmp.Or(e.Runs, loadRuns), authenticatedMany
	if e.Runs > 0 && runs < longRun {
		many = authenticatedFew
	}
	for _, by := range []struct {
		figure, apn string
		must        *report.Must
	}{
		{figureAuthenticated, "authenticate = \"radius\"\n", must(attachName, figureAuthenticated)},
		{figureAccounted, "authenticate = \"radius\"\naccounting = \"radius\"\n", nil},
	} {
		e.Step("Isthmus GGSN: %s, %d at a time", by.figure, many)
		perTime, perSecond, err := authenticatedRate(ctx, e, by.apn, many, runs)
		if err != nil {
			return fmt.Errorf("%s: %w", by.figure, err)
		}
		rep.Figures = append(rep.Figures,
			report.Figure{Name: by.figure, Unit: "/s", Must: by.must, Isthmus: report.Measured(perTime...)},
			report.Figure{Name: "the same, in a second of the clock, all else beside", Unit: "/s", Isthmus: report.Measured(perSecond...)})
	}
	return nil
}

// authenticatedRate are the contexts that are created in a second of the GGSN's processor, and in one of the clock.
func authenticatedRate(ctx context.Context, e *lab.Env, apn string, many, runs int) (perTime, perSecond []float64, err error) {
	n, err := drawCore(ctx, e, "core", core4)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	n.pool4, n.apn = loadPool, apn
	yes, err := n.startYes()
	if err != nil {
		return nil, nil, err
	}
	defer closing(&err, yes.close)
	g, err := n.startGuests(many, guestKind{apn: coreAPN(false), is: gtp.PDPTypeIPv4})
	if err != nil {
		return nil, nil, err
	}
	defer closing(&err, g.close)
	if err := n.startGGSN(ctx, isthmus); err != nil {
		return nil, nil, err
	}
	ggsn, all := n.daemons.run[len(n.daemons.run)-1].PID(), numbers(0, many)
	for run := range runs + 1 {
		begin := time.Now()
		before, err := processTime(ggsn)
		if err != nil {
			return nil, nil, err
		}
		if _, err := g.enter(ctx, all); err != nil {
			return nil, nil, err
		}
		clock := time.Since(begin)
		after, err := processTime(ggsn)
		if err != nil {
			return nil, nil, err
		}
		if err := g.leave(ctx, all); err != nil {
			return nil, nil, err
		}
		if run > 0 { // the first takes the memory
			perTime = append(perTime, float64(many)/max(after-before, time.Millisecond).Seconds())
			perSecond = append(perSecond, float64(many)/clock.Seconds())
		}
	}
	return perTime, perSecond, nil
}

// yesServer is a RADIUS server that lets everybody in and takes every record. FreeRADIUS would be the limit of what asks
// a server for each context.
type yesServer struct {
	sockets []*port.UDP
	group   errgroup.Group
}

// startYes starts one in the net behind the GGSN, which is to ask it.
func (n *coreNet) startYes() (*yesServer, error) {
	file := filepath.Join(n.dir, "radius.secret")
	if err := os.WriteFile(file, []byte(testbedSecret+"\n"), 0o600); err != nil {
		return nil, err
	}
	y := new(yesServer)
	for _, of := range []uint16{1812, 1813} {
		err := n.srv.Do(func() error {
			u, err := port.ListenUDP(port.UDPConfig{Addr: netip.AddrPortFrom(coreSrv4, of)})
			if err == nil {
				y.sockets = append(y.sockets, u)
				y.group.Go(func() error { return answer(u) })
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(err, y.close())
		}
	}
	n.more = fmt.Sprintf("request_rate = 1000000\naccounting_file = %q\n[[ggsn.radius]]\naddress = %q\nuse = \"both\"\nsecret_file = %q\n", filepath.Join(n.dir, "accounting"), coreSrv4, file)
	return y, nil
}

func (y *yesServer) close() error {
	var errs []error
	for _, u := range y.sockets {
		errs = append(errs, u.Close())
	}
	return errors.Join(append(errs, y.group.Wait())...)
}

// answer answers what comes to a socket, until it is closed.
func answer(u *port.UDP) error {
	msgs := make([]port.Message, port.MaxBatch)
	for out := (packet.Batch{}); ; out.Reset() {
		k, err := u.ReadBatch(msgs)
		if errors.Is(err, port.ErrClosed) {
			return nil
		} else if err != nil {
			return err
		}
		for _, m := range msgs[:k] {
			if b := yesTo(m.Payload); b != nil {
				out.SendUDP(0, m.From, b)
			}
		}
		if err := u.WriteBatch(out.UDP); err != nil && !errors.Is(err, port.ErrClosed) {
			return err
		}
	}
}

// yesTo is the answer to a request that grants it or has taken it: with the authenticator of RFC 2865 section 3, and to
// an Access-Request with a Message-Authenticator (RFC 3579 section 3.2). Nil: it is no request.
func yesTo(request []byte) []byte {
	if len(request) < 20 {
		return nil
	}
	b := append([]byte{0, request[1], 0, 20}, request[4:20]...)
	switch radius.Code(request[0]) {
	case radius.AccessRequest:
		b[0], b[3] = byte(radius.AccessAccept), 20+2+md5.Size
		b = append(b, byte(radius.MessageAuthenticator), 2+md5.Size)
		h := hmac.New(md5.New, []byte(testbedSecret))
		h.Write(b)
		h.Write(make([]byte, md5.Size))
		b = h.Sum(b)
	case radius.AccountingRequest:
		b[0] = byte(radius.AccountingResponse)
	default:
		return nil
	}
	sum := md5.Sum(append(b[:len(b):len(b)], testbedSecret...))
	copy(b[4:], sum[:])
	return b
}
