// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// appDirection is who calls whom.
type appDirection string

// The directions.
const (
	from6 appDirection = "IPv6 to IPv4"
	from4 appDirection = "IPv4 to IPv6"
)

// programLimit bounds the run of one program.
const programLimit = time.Minute

// How long ping and traceroute wait for an answer, in seconds. A hop that does not
// answer fails a row, however it is waited for; tayga's fail in another way.
const (
	pingPatience = "20"
	hopPatience  = "20"
)

const pings = 3

// caller is the node that calls in that direction, and the address that it calls.
func (n *appNet) caller(d appDirection) (*lab.Node, netip.Addr) {
	if d == from6 {
		return n.host6, host4In6()
	}
	return n.host4, appMapped
}

// application is one program of the demonstration of 1998, or its heir.
type application struct {
	name      string
	published string // what 1998 showed
	// try returns why it does not work.
	try func(context.Context, *appNet, appDirection) error
}

// applications are shown in this order.
var applications = []application{
	{"web page, curl from apache2", "shown", tryCurl},
	{"web page with pictures, as a browser", "shown", tryBrowser},
	{"nuttcp, sends (ttcp in 1998)", "shown", tryNuttcp("-t")},
	{"nuttcp, receives", "shown", tryNuttcp("-r")},
	{"finger", "shown", tryFinger},
	{"telnet", "shown", tryTelnet},
	{"ping", "shown", tryPing},
	{"traceroute, echo requests", "shown", tryTraceroute("-I")},
	{"traceroute, UDP", "shown", tryTraceroute("-U", "-p", strconv.Itoa(closedPort))},
	{"traceroute, TCP", "-", tryTraceroute("-T", "-p", strconv.Itoa(webPort))},
	{"ftp, passive, fetches and stores", "shown", tryFTP("-p")},
	{"ftp, active, fetches and stores", "-", tryFTP("-A")},
}

// run runs a program of the peers in a node and returns what it wrote.
func (n *appNet) run(ctx context.Context, node *lab.Node, program string, args ...string) (string, error) {
	path, err := peersOf(n.env).Program(program)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	out, err := node.Run(ctx, append([]string{path}, args...)...)
	return string(out), err
}

// expect fails unless a text is part of what was written.
func expect(out, want string) error {
	if !strings.Contains(out, want) {
		return fmt.Errorf("no %q in %q", want, strings.TrimSpace(out))
	}
	return nil
}

func tryCurl(ctx context.Context, n *appNet, d appDirection) error {
	node, to := n.caller(d)
	out, err := n.run(ctx, node, "curl", "--silent", "--show-error", "--fail", "--globoff",
		"http://"+netip.AddrPortFrom(to, webPort).String()+"/picture-7")
	if err != nil {
		return err
	}
	if !bytes.Equal([]byte(out), picture(7)) {
		return fmt.Errorf("%d bytes arrived, and not those of the page", len(out))
	}
	return nil
}

// browserConnections is how many connections a browser opens to one server.
const browserConnections = 6

var pictureTag = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`<img src="([^"]+)">`) })

// tryBrowser fetches a page and then what it shows, by several connections at once
// that stay open.
func tryBrowser(ctx context.Context, n *appNet, d appDirection) error {
	node, to := n.caller(d)
	transport := &http.Transport{DialContext: dialer(node), MaxConnsPerHost: browserConnections}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: programLimit}
	base := "http://" + netip.AddrPortFrom(to, webPort).String()
	page, err := fetch(ctx, client, base+"/")
	if err != nil {
		return err
	}
	tags := pictureTag().FindAllSubmatch(page, -1)
	if len(tags) != webPictures {
		return fmt.Errorf("the page shows %d pictures, not %d", len(tags), webPictures)
	}
	errs := make([]error, len(tags))
	var wait sync.WaitGroup
	for i, tag := range tags {
		wait.Go(func() {
			body, err := fetch(ctx, client, base+string(tag[1]))
			if err == nil && !bytes.Equal(body, picture(i)) {
				err = fmt.Errorf("picture %d changed on its way", i)
			}
			errs[i] = err
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

func fetch(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answers %s", answer.Status)
	}
	return io.ReadAll(answer.Body)
}

var nuttcpRate = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`= +([0-9.]+) Mbps`) })

// tryNuttcp transfers for half a second.
func tryNuttcp(mode string) func(context.Context, *appNet, appDirection) error {
	return func(ctx context.Context, n *appNet, d appDirection) error {
		node, to := n.caller(d)
		family, args := "-4", []string{mode}
		if d == from6 {
			family = "-6"
		}
		if mode == "-r" {
			args = append(args, "-F") // the client opens the data connection, too
		}
		out, err := n.run(ctx, node, "nuttcp", append(args, family, "-n16m", to.String())...)
		if err != nil {
			return err
		}
		if m := nuttcpRate().FindStringSubmatch(out); m == nil || m[1] == "0.0000" {
			return fmt.Errorf("it says %q", strings.TrimSpace(out))
		}
		return nil
	}
}

func tryFinger(ctx context.Context, n *appNet, d appDirection) error {
	node, to := n.caller(d)
	out, err := n.run(ctx, node, "finger", "root@"+to.String())
	if err != nil {
		return err
	}
	return expect(out, "Login: root")
}

// tryTelnet types one line. The client ends when its input ends, so that this stays
// open until the server has answered.
func tryTelnet(ctx context.Context, n *appNet, d appDirection) error {
	node, to := n.caller(d)
	path, err := peersOf(n.env).Program("inetutils-telnet")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, programLimit)
	defer cancel()
	p, err := node.Start(ctx, lab.Process{Name: "telnet", Path: "sh", Args: []string{
		"-c", `{ echo hello; while kill -0 $$ 2>/dev/null; do sleep 0.1; done; } | exec "$0" "$1"`, path, to.String(),
	}})
	if err != nil {
		return err
	}
	defer func() { _ = p.Stop() }()
	for _, want := range []string{peers.TelnetGreeting, peers.TelnetEcho + "hello"} {
		if _, err := p.WaitFor(ctx, want); err != nil {
			return err
		}
	}
	return nil
}

// tryPing has each echo in a run of its own: once one of several is answered, ping waits for the
// others no longer than two round trips.
func tryPing(ctx context.Context, n *appNet, d appDirection) error {
	node, to := n.caller(d)
	for range pings {
		out, err := n.run(ctx, node, "ping", "-n", "-c", "1", "-W", pingPatience, "-e", strconv.Itoa(echoIdent), to.String())
		if err = errors.Join(err, expect(out, " 1 received")); err != nil {
			return err
		}
	}
	return nil
}

// hopLine is one line of traceroute.
var hopLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^ *[0-9]+ +([0-9a-f.:]+|\*)`) })

// tryTraceroute compares the hops with the routers that are there, each to be seen once:
// those of the IPv4 side appear by their translated addresses, those of the IPv6 side,
// which have none, by what stands for them.
func tryTraceroute(args ...string) func(context.Context, *appNet, appDirection) error {
	return func(ctx context.Context, n *appNet, d appDirection) error {
		node, to := n.caller(d)
		one := func(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
		want := []netip.Prefix{one(appRouter6), one(appCore6), one(appBox6), one(translated(appPrefix, appInner4)), one(host4In6())}
		if d == from4 {
			want = []netip.Prefix{one(appRouter4), one(appBox4), n.router6In4(), n.router6In4(), one(appMapped)}
		}
		program, err := peersOf(n.env).Program("traceroute.db")
		if err != nil {
			return err
		}
		// The identifier of its echo requests is its process id, which a static binding can
		// only know if that is always the same: in a namespace of its own it is 1.
		ctx, cancel := context.WithTimeout(ctx, programLimit)
		defer cancel()
		command := append([]string{"unshare", "--pid", "--fork", "--kill-child", program}, args...)
		out, err := node.Run(ctx, append(command, "-n", "-q", "1", "-w", hopPatience, "-m", "10", to.String())...)
		if err != nil {
			return err
		}
		var hops []string
		seen := make(map[string]bool)
		for line := range strings.Lines(string(out)) {
			if m := hopLine().FindStringSubmatch(line); m != nil {
				hops = append(hops, m[1])
				seen[m[1]] = true
			}
		}
		right := len(hops) == len(want) && len(seen) == len(want)
		for i := range min(len(hops), len(want)) {
			a, err := netip.ParseAddr(hops[i])
			right = right && err == nil && want[i].Contains(a)
		}
		if !right {
			return fmt.Errorf("the way is %s", strings.Join(hops, ", "))
		}
		return nil
	}
}
