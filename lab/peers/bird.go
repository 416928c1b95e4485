// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"
)

// Bird is the configuration of the routing daemon BIRD 2 as a router that hears
// of prefixes by BGP and puts them into its kernel's table.
type Bird struct {
	// Name distinguishes instances; it names the files.
	Name string
	// RouterID is an IPv4 address of the router.
	RouterID netip.Addr
	AS       int
	Sessions []BirdSession
	// Learn is a table of the kernel from which routes are told to the neighbors;
	// 0 is none.
	Learn int
}

// BirdSession is one neighbor of a [Bird].
type BirdSession struct {
	// Name is that of the protocol in BIRD.
	Name            string
	Local, Neighbor netip.Addr
	// AS of the neighbor.
	AS int
	// Password of TCP MD5 signatures; empty is none.
	Password string
	// Passive waits for the neighbor's call.
	Passive bool
	// Graceful keeps the neighbor's routes while it restarts.
	Graceful bool
	// TTLSecurity takes packets from the same link only.
	TTLSecurity bool
	// VRF is the one in which the session is, with Network as its table; empty is none.
	VRF string
	// Network is a table of the kernel, such as that of a VRF: this neighbor is told of the routes there that
	// are of the program's devices, and of nothing else. 0 is none.
	Network int
}

// Socket is where BIRD of that name listens for [AskBird], below dir.
func (c Bird) Socket(dir string) string { return filepath.Join(dir, c.Name+".ctl") }

// Bird writes the configuration below dir and returns the command.
func (p *Peers) Bird(dir string, c Bird) (*Command, error) {
	i, err := p.instance("bird", dir, c.Name+".bird")
	if err != nil {
		return nil, err
	}
	return i.command(c.config(), "-f", "-c", i.at(configured), "-s", c.Socket(i.dir), "-P", i.at(".pid"))
}

func (c Bird) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "log stderr all;\nrouter id %s;\nprotocol device { scan time 1; }\n", c.RouterID)
	for _, family := range []string{"ipv4", "ipv6"} {
		fmt.Fprintf(&b, "protocol kernel main_%s { %s { import none; export where source = RTS_BGP; }; }\n", family, family)
		if c.Learn > 0 {
			fmt.Fprintf(&b, "%s table signs_%s;\n", family, family)
			fmt.Fprintf(&b, "protocol kernel learn_%s { learn; scan time 1; kernel table %d; %s { table signs_%s; import all; export none; }; }\n",
				family, c.Learn, family, family)
		}
	}
	for _, s := range c.Sessions {
		s.learn(&b)
		fmt.Fprintf(&b, "protocol bgp %s {\n\tlocal %s as %d;\n\tneighbor %s as %d;\n", s.Name, s.Local, c.AS, s.Neighbor, s.AS)
		b.WriteString("\tconnect delay time 1;\n\tconnect retry time 1;\n\terror wait time 1,1;\n")
		option := func(on bool, text string) {
			if on {
				b.WriteString("\t" + text + ";\n")
			}
		}
		option(s.VRF != "", fmt.Sprintf("vrf %q", s.VRF))
		option(s.Password != "", fmt.Sprintf("password %q", s.Password))
		option(s.Passive, "passive yes")
		option(s.TTLSecurity, "ttl security on")
		if s.Graceful {
			b.WriteString("\tgraceful restart on;\n")
		} else {
			b.WriteString("\tgraceful restart off;\n")
		}
		for _, family := range []string{"ipv4", "ipv6"} {
			switch {
			case s.Network > 0:
				fmt.Fprintf(&b, "\t%s { table %s_%s; import none; export all; next hop self; };\n", family, s.Name, family)
			case c.Learn > 0:
				fmt.Fprintf(&b, "\t%s { table signs_%s; import none; export all; next hop self; };\n", family, family)
			default:
				fmt.Fprintf(&b, "\t%s { import all; export none; };\n", family)
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// learn reads the table of a neighbor's network, as docs/ggsn.md has it.
func (s *BirdSession) learn(b *strings.Builder) {
	vrf := ""
	if s.VRF != "" {
		vrf = fmt.Sprintf("vrf %q; ", s.VRF)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		if s.Network > 0 {
			fmt.Fprintf(b, "%s table %s_%s;\n", family, s.Name, family)
			fmt.Fprintf(b, "protocol kernel learn_%s_%s { %slearn; scan time 1; kernel table %d; %s { table %s_%s; import where krt_source = 73; export none; }; }\n",
				s.Name, family, vrf, s.Network, family, s.Name, family)
		}
	}
}

// birdTimeout bounds a question to BIRD.
const birdTimeout = 30 * time.Second

// AskBird gives BIRD a command, such as "show route all", and returns its answer.
func AskBird(socket, command string) (string, error) {
	conn, err := net.DialTimeout("unix", socket, birdTimeout)
	if err != nil {
		return "", fmt.Errorf("BIRD cannot be asked: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(birdTimeout)); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(conn)
	if _, err := birdReply(lines); err != nil { // its greeting
		return "", err
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return "", err
	}
	return birdReply(lines)
}

// birdNothing is the code for a route that does not exist, which is an answer, too.
const birdNothing = "8001"

// birdReply reads lines up to the last one of a reply, which has a blank behind
// its number; those before have a hyphen, or a blank in place of number and all.
func birdReply(lines *bufio.Scanner) (string, error) {
	var text strings.Builder
	for lines.Scan() {
		line := lines.Text()
		if len(line) < 5 || line[0] == ' ' {
			text.WriteString(strings.TrimPrefix(line, " ") + "\n")
			continue
		}
		code, rest := line[:4], line[5:]
		if code == birdNothing {
			return "", nil
		}
		if code >= "8000" {
			return "", fmt.Errorf("BIRD refuses: %s", rest)
		}
		text.WriteString(rest + "\n")
		if line[4] == ' ' {
			return strings.TrimSpace(text.String()), nil
		}
	}
	return "", fmt.Errorf("the answer of BIRD broke off: %w", lines.Err())
}
