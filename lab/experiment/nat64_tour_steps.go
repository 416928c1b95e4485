// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/isthmus-net/isthmus/lab"
)

// lead does the steps in order.
func (g *nat64Guide) lead(ctx context.Context) {
	site6 := translated(tourPrefix, tourSite4)
	g.take(ctx, []walkStep{
		{"The gateway starts, by what 'isthmus init nat64' prints, and serves", g.startGateway},
		{"The client hears the prefix from a router advertisement", g.hear},
		{"The client learns the same prefix by DNS", g.askPrefix},
		{"It asks for " + tourSiteName + ", which has an IPv4 address alone", g.resolve},
		{"It fetches a page from there", func(ctx context.Context) (string, error) { return g.fetch(ctx, tourSiteName, site6) }},
		{"It pings the site", func(ctx context.Context) (string, error) { return g.ping(ctx, g.client, site6) }},
		{"It looks at the way: routers of IPv4 have translated addresses", g.way},
		{"It fetches a file by FTP, passive", func(ctx context.Context) (string, error) { return g.ftp(ctx, "-p") }},
		{"It fetches a file by FTP, active: the server calls the client", func(ctx context.Context) (string, error) { return g.ftp(ctx, "-A") }},
		{"It starts 'isthmus clat'", g.startCLAT},
		{"It pings the IPv4 address", func(ctx context.Context) (string, error) { return g.ping(ctx, g.client, tourSite4) }},
		{"It fetches the page from the IPv4 address", func(ctx context.Context) (string, error) { return g.fetch(ctx, tourSite4.String(), tourSite4) }},
		{"The gateway lists its sessions", g.sessions},
	})
}

// startGateway is over when an echo request comes through.
func (g *nat64Guide) startGateway(ctx context.Context) (string, error) {
	text, err := g.configuration()
	if err != nil {
		return "", err
	}
	if err := g.serve(ctx, g.gateway, text); err != nil {
		return "", err
	}
	return fmt.Sprintf("NAT64 and DNS64 with the one IPv4 address %s", tourGateway4), nil
}

// discover runs 'isthmus pref64 discover' and wants the prefix from that source.
func (g *nat64Guide) discover(ctx context.Context, source string, args ...string) (string, error) {
	out, err := g.run(ctx, g.client, append([]string{g.env.Binary, "pref64", "discover"}, args...)...)
	if err == nil {
		err = errors.Join(expect(out, tourPrefix.String()), expect(out, source))
	}
	return out, err
}

func (g *nat64Guide) hear(ctx context.Context) (string, error) {
	return g.discover(ctx, "by router advertisement", "-i", "eth0")
}

func (g *nat64Guide) askPrefix(ctx context.Context) (string, error) {
	return g.discover(ctx, "by dns", "--resolver", tourGateway6.String())
}

func (g *nat64Guide) resolve(ctx context.Context) (string, error) {
	out, err := g.peer(ctx, g.client, "dig", "+noall", "+answer", "@"+tourGateway6.String(), tourSiteName, "AAAA")
	if err == nil {
		err = expect(out, translated(tourPrefix, tourSite4).String())
	}
	return out, err
}

// fetch gets the first page and looks at it.
func (g *nat64Guide) fetch(ctx context.Context, host string, at netip.Addr) (string, error) {
	to := at.String()
	if at.Is6() {
		to = "[" + to + "]"
	}
	out, err := g.peer(ctx, g.client, "curl", "-sS", "--noproxy", "*", "--resolve", fmt.Sprintf("%s:%d:%s", host, webPort, to), "http://"+host+"/")
	if err == nil {
		err = expect(out, "<title>isthmus</title>")
	}
	return "", err
}

func (g *nat64Guide) way(ctx context.Context) (string, error) {
	out, err := g.peer(ctx, g.client, "traceroute.db", "-I", "-n", "-q", "1", "-w", hopPatience, "-m", "10", translated(tourPrefix, tourSite4).String())
	if err != nil {
		return out, err
	}
	want := []netip.Addr{tourGateway6, translated(tourPrefix, tourRouter4), translated(tourPrefix, tourSite4)}
	var hops []string
	for line := range strings.Lines(out) {
		if m := hopLine().FindStringSubmatch(line); m != nil {
			hops = append(hops, m[1])
		}
	}
	same := len(hops) == len(want)
	for i := range min(len(hops), len(want)) {
		same = same && net.ParseIP(hops[i]).Equal(want[i].AsSlice())
	}
	if !same {
		return out, fmt.Errorf("the way is %s, not %v", strings.Join(hops, ", "), want)
	}
	return strings.Join(hops, "\n"), nil
}

func (g *nat64Guide) ftp(ctx context.Context, mode string) (string, error) {
	into := filepath.Join(g.dir, "fetched"+mode)
	client, err := peersOf(g.env).Program("tnftp")
	if err != nil {
		return "", err
	}
	url := fmt.Sprintf("ftp://[%s]:%d/%s", translated(tourPrefix, tourSite4), ftpPort, ftpFile)
	if out, err := g.run(ctx, g.client, "env", "HOME="+g.dir, client, mode, "-o", into, url); err != nil {
		return out, err
	}
	got, err := os.ReadFile(into)
	if err == nil && !bytes.Equal(got, picture(0)) {
		err = fmt.Errorf("a file of %d bytes arrived, and not the one that was sent", len(got))
	}
	return "", err
}

// startCLAT is over when the host has its IPv4 address.
func (g *nat64Guide) startCLAT(ctx context.Context) (string, error) {
	return g.runCLAT(ctx, g.client, "--resolver", tourGateway6.String())
}

// runCLAT starts a CLAT in a node, and waits until it serves.
func (w *walk) runCLAT(ctx context.Context, node *lab.Node, flags ...string) (string, error) {
	what := lab.Process{
		Name: "isthmus-clat", Path: w.env.Binary, Args: append([]string{"clat"}, flags...),
		Env: []string{"ISTHMUS_CONTROL=" + w.socket(node.Name())},
	}
	if err := w.start(ctx, node, what); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, daemonStart)
	defer cancel()
	line, err := last(w.running).WaitFor(ctx, "msg=serving")
	if _, rest, ok := strings.Cut(line, "interface="); ok {
		line = "interface=" + rest
	}
	return line, err
}

func (g *nat64Guide) sessions(ctx context.Context) (string, error) {
	out, err := g.run(ctx, g.gateway, g.env.Binary, "nat64", "sessions", "--socket", g.socket("gateway"), "--limit", "6")
	if err == nil {
		err = errors.Join(expect(out, tourClient6.String()), expect(out, tourSite4.String()))
	}
	return out, err
}
