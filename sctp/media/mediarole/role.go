// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package mediarole

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/role"
	"github.com/isthmus-net/isthmus/sctp/media/transfer"
)

const name = "sctp_media"

// Role is the SCTP media server as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "SCTP media server: it sends files and synthetic sources by associations that outlive a network. isthmus sctp get gets them. docs/sctp-media.md",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
	},
	Summary: (*Settings).summary,
	Files:   func(s *Settings) []role.Finding { return role.Problems(s.examineFolder()) },
	New:     func(s Settings, log *slog.Logger) (role.Instance, error) { return New(s, log) },

	Questions: questions,
	Command:   role.Command{Help: "Look into a running SCTP media server.", Flags: func() any { return new(asks) }},
	Tools:     []role.Command{{Name: "sctp", Help: "Get media by SCTP, and measure.", Flags: func() any { return new(commands) }}},
}.Role()

// Settings are one [[sctp_media]] section; what each means stands where its key is declared.
type Settings struct {
	Name            string
	Listen          []netip.Addr
	Port            int
	Encapsulation   string
	UDPPort         int
	HideAddresses   bool
	Root            string
	Sources         []Source
	Streams         int
	MessageSize     int
	MaxFileSize     int
	MaxSessions     int
	SessionsPerPeer int
	IdleTimeout     time.Duration
	Primary         netip.Addr
	Tuning
}

// Source is a synthetic one.
type Source struct {
	Name         string
	Rate         int
	Size, Octets int
}

// Encapsulations.
const (
	inUDP = "udp"
	inIP  = "none"
)

func (s *Settings) keys() []key.Key {
	return append([]key.Key{
		key.Of("name", &s.Name, "media", key.InstanceName, key.Identity,
			"Unique over all instances. Small letters, digits, dots and hyphens."),
		key.Of("listen", &s.Listen, []string{}, key.List(key.Host), key.Restart,
			"Addresses of this host that associations have. Empty: all, and those that come and go are followed."),
		key.Of("port", &s.Port, 5000, key.Integer[int](1, 65535), key.Restart, "Port of SCTP."),
		key.Of("encapsulation", &s.Encapsulation, inUDP, key.OneOf(inUDP, inIP), key.Restart,
			`"udp" puts packets into UDP (RFC 6951); "none" into IP, protocol 132.`),
		key.Of("udp_port", &s.UDPPort, 9899, key.Integer[int](1, 65535), key.Restart, "Port of UDP."),
		key.Of("hide_addresses", &s.HideAddresses, false, key.Bool, key.Restart,
			"Tell peers no address but those that packets come from, as behind a NAT (RFC 6951, section 5.7)."),
		key.Of("root", &s.Root, key.Example("/srv/media"), key.Optional(key.File), key.Live,
			"Folder whose files are sent, with those below it. Hidden files, and links that lead out of it, are not. Empty: none."),
		key.Tables("source", &s.Sources, "source", `[[sctp_media.source]] with name = "voice"`, (*Source).keys, key.Live,
			"Synthetic sources. Each is a section of its own:\n"+
				"  [[sctp_media.source]]\n  name = \"voice\"\n  rate = 50            messages a second; 0 is as fast as they go\n"+
				"  size = 160           octets of a message\n  octets = 1073741824  in all."),
		key.Of("streams", &s.Streams, 4, key.Integer[int](1, 1000), key.Restart, "Streams that carry the data of a transfer at most, beside that for control."),
		key.Of("message_size", &s.MessageSize, 1200, key.Integer[int](1, transfer.MaxData), key.Live, "Octets of media in a message, where the client asks for none."),
		key.Of("max_file_size", &s.MaxFileSize, 1<<30, key.Count(0), key.Live, "Octets of a file that is sent at most; 0 is no limit."),
		key.Of("max_sessions", &s.MaxSessions, 100, key.Integer[int](1, 4000), key.Live, "Associations at a time; a further one is aborted."),
		key.Of("sessions_per_peer", &s.SessionsPerPeer, 8, key.Integer[int](1, 4000), key.Live,
			"The same of one peer: an IPv4 address, or an IPv6 /64, that is one of its."),
		key.Of("idle_timeout", &s.IdleTimeout, "5m", key.Duration(time.Second, 24*time.Hour), key.Live,
			"How long an association may ask for nothing, or take nothing of what it has asked for."),
		key.Of("primary", &s.Primary, "", key.Optional(key.Host), key.Live,
			"Address of this host that data go from while its paths work. Empty: the one that the association was set up by."),
	}, s.Tuning.keys()...)
}

func (s *Source) keys() []key.Key {
	return []key.Key{
		key.Of("name", &s.Name, key.MustSet("voice"), key.Text("voice", func(text string) (string, *key.Fault) {
			if err := transfer.CheckName(text); err != nil || strings.Contains(text, "/") {
				return "", key.Wrong("write a word like voice", "%q is no name of a source", text)
			}
			return text, nil
		}), key.Identity, "What clients ask for."),
		key.Of("rate", &s.Rate, 50, key.Integer[int](0, 1_000_000), key.Live, "Messages a second; 0 is as fast as they go."),
		key.Of("size", &s.Size, 160, key.Integer[int](1, transfer.MaxData), key.Live, "Octets of a message."),
		key.Of("octets", &s.Octets, 1<<30, key.Count(1), key.Live, "Octets in all."),
	}
}

func (s *Settings) check(c *config.Checker) {
	if s.Root == "" && len(s.Sources) == 0 && c.OK("root", "source") {
		c.Fail("", "this server has nothing to send", `add root = "/srv/media", or a [[sctp_media.source]]`)
	}
	for i := range s.Sources {
		if slices.ContainsFunc(s.Sources[:i], func(o Source) bool { return o.Name == s.Sources[i].Name }) && c.OK("source") {
			c.Fail(fmt.Sprintf("source[%d].name", i), fmt.Sprintf("%q is there twice", s.Sources[i].Name), "give each source a name of its own")
		}
	}
	for i, a := range s.Listen {
		if (a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified()) && c.OK("listen") {
			c.Fail(fmt.Sprintf("listen[%d]", i), fmt.Sprintf("%s is not an address that a peer could reach from elsewhere", a), "leave the key out for all addresses of this host, or name some")
		}
	}
	if s.Primary.IsValid() && len(s.Listen) > 0 && !slices.Contains(s.Listen, s.Primary) && c.OK("primary", "listen") {
		c.Fail("primary", fmt.Sprintf("%s is not among listen", s.Primary), "name one of these")
	}
	if s.SessionsPerPeer > s.MaxSessions && c.OK("sessions_per_peer", "max_sessions") {
		c.Fail("sessions_per_peer", fmt.Sprintf("%d are more than max_sessions, %d", s.SessionsPerPeer, s.MaxSessions), fmt.Sprintf("write %d or less", s.MaxSessions))
	}
	if c.OK("rto_initial", "rto_min", "rto_max") {
		switch {
		case s.RTOMax < s.RTOMin:
			c.Fail("rto_max", fmt.Sprintf("%v is less than rto_min, %v", s.RTOMax, s.RTOMin), fmt.Sprintf("write %v or more", s.RTOMin))
		case s.RTOInitial < s.RTOMin:
			c.Fail("rto_initial", fmt.Sprintf("%v is less than rto_min, %v", s.RTOInitial, s.RTOMin), fmt.Sprintf("write %v or more", s.RTOMin))
		}
	}
}

// claims are the sockets as package sctp binds them: one for each family, at its only address or at all of them.
func (s *Settings) claims() (claims []config.Claim) {
	claim := func(key, protocol string, a netip.Addr, number int) {
		at := netip.AddrPortFrom(a, uint16(number))
		claims = append(claims, config.Socket{Key: key, Protocol: protocol, At: at, Only6: protocol == "UDP"})
	}
	if s.Encapsulation == inIP { // raw sockets do not know of ports: it is for the whole network namespace
		claims = append(claims, config.Right{Capability: unix.CAP_NET_RAW, Name: "CAP_NET_RAW", Purpose: "send packets of SCTP"})
		claim("port", "SCTP", netip.IPv6Unspecified(), s.Port)
		return claims
	}
	for _, a := range s.Listen {
		claim("listen", "UDP", a, s.UDPPort)
	}
	for _, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		n := 0
		for _, a := range s.Listen {
			if a.Is4() == all.Is4() {
				n++
			}
		}
		if n > 1 || len(s.Listen) == 0 {
			claim("listen", "UDP", all, s.UDPPort)
		}
	}
	return claims
}

func (s *Settings) summary() string {
	where := "all addresses"
	if len(s.Listen) > 0 {
		where = role.Join(s.Listen)
	}
	way := fmt.Sprintf("in UDP %d", s.UDPPort)
	if s.Encapsulation == inIP {
		way = "in IP"
	}
	return fmt.Sprintf("sends %s and %d synthetic sources by SCTP port %d, %s, of %s", cmp.Or(s.Root, "no files"), len(s.Sources), s.Port, way, where)
}

// examineFolder looks whether there is the folder of files.
func (s *Settings) examineFolder() error {
	if s.Root == "" {
		return nil
	}
	f, err := os.OpenRoot(s.Root)
	if err != nil {
		return fmt.Errorf("%s %s: root cannot be opened: %w; make the folder, or let the user of isthmus read it", name, s.Name, err)
	}
	return f.Close()
}

// address is where the library listens.
func (s *Settings) address() (network, address string) {
	network = "sctp"
	if s.Encapsulation == inUDP {
		network = "sctp+udp"
	}
	var hosts []string
	for _, a := range s.Listen {
		if a.Is6() {
			hosts = append(hosts, "["+a.String()+"]")
		} else {
			hosts = append(hosts, a.String())
		}
	}
	return network, fmt.Sprintf("%s:%d", strings.Join(hosts, "/"), s.Port)
}
