// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/isthmus-net/isthmus/lab"
)

// lead does the steps in order.
func (g *xlatGuide) lead(ctx context.Context) {
	site6 := translated(tourPrefix, tourSite4)
	g.take(ctx, []walkStep{
		{"The core starts: GGSN, NAT64 and DNS64 of one configuration", g.startCore},
		{"The UE attaches, with a context of IPv6 alone", g.attach},
		{"A program of the UE hears the NAT64's prefix from the GGSN's router advertisement", g.hear},
		{"The UE asks the name server that it was told for " + tourSiteName + ", which has an IPv4 address alone", g.resolve},
		{"It pings what it was answered", func(ctx context.Context) (string, error) { return g.ping(ctx, g.ue, site6) }},
		{"It tries that way: pings, and transfers by TCP both ways", func(ctx context.Context) (string, error) {
			return g.try(ctx, "IPv6: DNS64, NAT64", site6)
		}},
		{"It starts 'isthmus clat'", g.startCLAT},
		{"It pings the IPv4 address", func(ctx context.Context) (string, error) { return g.ping(ctx, g.ue, tourSite4) }},
		{"It tries that way, too", func(ctx context.Context) (string, error) {
			return g.try(ctx, "IPv4: CLAT, NAT64", tourSite4)
		}},
		{"Datagrams of IPv4 go there and back, small, and in fragments", g.datagrams},
		{"A closed port of the site is told to the program", g.refused},
		{"The way to the IPv4 address: routers of IPv4 answer", g.way},
	})
}

func (g *xlatGuide) startCore(ctx context.Context) (string, error) {
	return "", g.serve(ctx, g.core, g.sections())
}

// attach is over when the UE has an address and a way.
func (g *xlatGuide) attach(ctx context.Context) (string, error) {
	i := instance{g.sgsn, g.env.Binary, g.dir, "sgsn"}
	if err := g.start(ctx, g.sgsn, i.attaching(core4, "internet", "v6", "--netns", g.ue.Namespace())); err != nil {
		return "", err
	}
	p := last(g.running)
	wait, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	if _, err := p.WaitFor(wait, "msg=configured"); err != nil {
		return "", err
	}
	c, err := g.context(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("address %v, name server %v, NAT64 %v, MTU %d", c.IPv6, c.DNS, c.NAT64, c.MTU), nil
}

// xlatContext is what the emulator tells of the UE's context.
type xlatContext struct {
	IPv6, DNS []netip.Addr
	NAT64     []netip.Prefix
	MTU       int `json:"mtu6"`
}

// context asks for it.
func (g *xlatGuide) context(ctx context.Context) (c xlatContext, err error) {
	out, err := g.run(ctx, g.sgsn, g.env.Binary, "sgsn", "contexts", "--json", "--socket", g.socket("sgsn"))
	if err != nil {
		return c, err
	}
	var list struct{ Contexts []xlatContext }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return c, err
	}
	all := list.Contexts
	if len(all) != 1 || len(all[0].IPv6) != 1 || len(all[0].DNS) != 1 || len(all[0].NAT64) != 1 {
		return c, fmt.Errorf("the context is %+v", all)
	}
	return all[0], nil
}

func (g *xlatGuide) hear(ctx context.Context) (string, error) {
	out, err := g.run(ctx, g.ue, g.env.Binary, "pref64", "discover", "-i", ueDevice)
	if err == nil {
		err = errors.Join(expect(out, tourPrefix.String()), expect(out, "by router advertisement"))
	}
	return out, err
}

func (g *xlatGuide) resolve(ctx context.Context) (string, error) {
	c, err := g.context(ctx)
	if err != nil {
		return "", err
	}
	out, err := g.peer(ctx, g.ue, "dig", "+noall", "+answer", "@"+c.DNS[0].String(), tourSiteName, "AAAA")
	if err == nil {
		err = expect(out, translated(tourPrefix, tourSite4).String())
	}
	return out, err
}

// try pings the site and transfers data both ways, by what leads there. Transfers are over too soon
// to tell a rate.
func (g *xlatGuide) try(ctx context.Context, title string, to netip.Addr) (said string, err error) {
	pings, size := xlatPings, int64(xlatBytes)
	if g.env.Runs > 0 {
		pings, size = xlatPingsShort, xlatBytesShort
	}
	w := xlatWay{title: title}
	if w.pings, err = g.ue.Ping(ctx, lab.Ping{To: to, Count: pings, Interval: 10 * time.Millisecond, Timeout: answerWait}); err != nil {
		return "", err
	}
	if w.pings.Lost() > 0 {
		return "", fmt.Errorf("%d of %d pings were lost", w.pings.Lost(), w.pings.Sent())
	}
	for _, up := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(ctx, programLimit) // what hangs, hangs for ever
		r, err := lab.Transfer(ctx, lab.TransferConfig{Server: g.site, Addr: tourSite4, Client: g.ue, Dial: to, Upload: up, Bytes: size})
		cancel()
		if err != nil {
			return "", err
		}
		if !r.Intact {
			return "", errors.New("what came is not what was sent")
		}
	}
	g.ways = append(g.ways, w)
	return fmt.Sprintf("%d pings, %.3f ms; %d MiB came whole to the UE, and as many from it", w.pings.Received(), milliseconds(w.pings.Median()), size>>20), nil
}

// startCLAT is over when the UE has its IPv4 address.
func (g *xlatGuide) startCLAT(ctx context.Context) (string, error) {
	line, err := g.runCLAT(ctx, g.ue)
	if err == nil {
		err = errors.Join(expect(line, tourPrefix.String()), expect(line, "router advertisement"))
	}
	return line, err
}

// datagrams has the site send back what comes: one that passes whole, one that the last link is
// too narrow for, and two that are more than any link carries.
func (g *xlatGuide) datagrams(ctx context.Context) (string, error) {
	server, err := listenUDP(g.site, netip.AddrPortFrom(tourSite4, echoPort))
	if err != nil {
		return "", err
	}
	defer server.Close()
	go func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	client, err := g.dial(ctx, echoPort)
	if err != nil {
		return "", err
	}
	defer client.Close()
	var sizes []string
	for _, size := range []int{64, 1330, 4000, 30000} {
		if err := echoed(client, size); err != nil {
			return "", fmt.Errorf("of %d bytes: %w", size, err)
		}
		sizes = append(sizes, fmt.Sprint(size))
	}
	return strings.Join(sizes, ", ") + " bytes came back", nil
}

// dial opens a socket of IPv4 on the UE, to a port of the site.
func (g *xlatGuide) dial(ctx context.Context, port uint16) (conn net.Conn, err error) {
	err = g.ue.Do(func() (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, "udp4", netip.AddrPortFrom(tourSite4, port).String())
		return err
	})
	return conn, err
}

// echoed sends a datagram until it comes back as it was: the first may be what the path's MTU is
// learnt by.
func echoed(conn net.Conn, size int) error {
	const tries = 10
	sent := bytes.Repeat([]byte{0, 1, 2, 3, 4, 5, 6, byte(size)}, size/8+1)[:size]
	got := make([]byte, 1<<16)
	for range tries {
		if _, err := conn.Write(sent); err != nil && !errors.Is(err, syscall.EMSGSIZE) {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(answerWait / tries)); err != nil {
			return err
		}
		if n, err := conn.Read(got); err == nil && bytes.Equal(got[:n], sent) {
			return nil
		}
	}
	return errors.New("none came back")
}

// refused has the site's kernel say that nobody listens.
func (g *xlatGuide) refused(ctx context.Context) (string, error) {
	conn, err := g.dial(ctx, closedPort)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("anybody?")); err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(answerWait)); err != nil {
		return "", err
	}
	if _, err := conn.Read(make([]byte, 8)); !errors.Is(err, syscall.ECONNREFUSED) {
		return "", fmt.Errorf("it hears %w", err)
	}
	return "connection refused", nil
}

func (g *xlatGuide) way(ctx context.Context) (string, error) {
	out, err := g.peer(ctx, g.ue, "traceroute.db", "-I", "-n", "-q", "1", "-w", hopPatience, "-m", "10", tourSite4.String())
	if err == nil {
		err = errors.Join(expect(out, tourRouter4.String()), expect(out, tourSite4.String()))
	}
	return out, err
}
