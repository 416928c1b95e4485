// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

const name = "sgsn"

// Role is the emulator of an SGSN as the program knows it.
var Role = role.Of[Settings]{
	Section: config.SectionOf[Settings]{
		Name: name,
		Help: "An SGSN with terminals, for labs: it opens PDP contexts at a GGSN, and gives this host, or a network namespace, what a terminal would have. docs/sgsn.md",
		Keys: (*Settings).keys, Check: (*Settings).check, Claims: (*Settings).claims,
		Secret: func(s *Settings) bool { return s.Password != "" },
	},
	Summary:   (*Settings).summary,
	Examine:   (*Settings).examine,
	New:       func(s Settings, log *slog.Logger) (role.Instance, error) { return New(s, log) },
	Questions: questions,
	Command:   role.Command{Help: "Be an SGSN with terminals, for labs.", Flags: func() any { return new(commands) }},
}.Role()

// Settings are one [[sgsn]] section; what each means stands where its key is declared.
type Settings struct {
	Name            string
	Local           []netip.Addr
	RestartCounter  counter
	StateFile       string // empty: one named after the instance
	T3Response      time.Duration
	N3Requests      int
	EchoInterval    time.Duration
	MaxContexts     int
	SequenceNumbers bool
	RouteMetric     int

	GGSN           netip.Addr
	APN            gtp.APN
	IMSI           gtp.IMSI
	MSISDN         string
	Type           gtp.PDPType
	Version        gtp.Version
	Fallback       bool
	NSAPI          uint8
	Delegate       bool
	PCSCF          bool
	User, Password string
	PasswordFile   string
	Auth           sgsn.Auth
	Netns, TUN     string
	Link           string
	ResolvConf     bool
}

func (s *Settings) keys() []key.Key {
	return append(s.nodeKeys(), s.terminalKeys()...)
}

// nodeKeys are those of the SGSN.
func (s *Settings) nodeKeys() []key.Key {
	return []key.Key{
		key.Of("name", &s.Name, name, key.InstanceName, key.Identity,
			"Unique over all instances. Small letters, digits, dots and hyphens."),
		key.Of("local", &s.Local, key.MustSet("192.0.2.2"), key.Filled("name an address of this host", key.List(hostAddress)), key.Restart,
			"GSN addresses, each of which is an SGSN to GGSNs: ports 2123, 2152 and 3386 of them. Terminals move between them."),
		key.Of("restart_counter", &s.RestartCounter, string(counterAuto), restartCounter, key.Restart,
			`What GGSNs are told as the number of our starts: "auto" for one more than at the last, which a file knows; "clock" for one of the time; a number to 255 in quotes; or "none" to leave it out of requests, for several emulators on one address.`),
		key.Of("state_file", &s.StateFile, "", key.Optional(key.File), key.Restart,
			"That file. Empty: /var/lib/isthmus/NAME.sgsn.state, and the clock where it cannot be had."),
		key.Of("t3_response", &s.T3Response, "5s", key.Duration(100*time.Millisecond, time.Minute), key.Restart,
			"How long a response is waited for before the request is sent again."),
		key.Of("n3_requests", &s.N3Requests, 3, key.Integer[int](1, 20), key.Restart,
			"How often a request is sent, the first time included."),
		key.Of("echo_interval", &s.EchoInterval, "0s", key.Duration(0, time.Hour), key.Restart,
			"How often GGSNs are asked whether they live; 0s is never, and networks in use want 60s at least."),
		key.Of("max_contexts", &s.MaxContexts, 1000, key.Count(1), key.Restart,
			"PDP contexts at once."),
		key.Of("sequence_numbers", &s.SequenceNumbers, false, key.Bool, key.Restart,
			"Number the user packets of GTPv1."),
		key.Of("route_metric", &s.RouteMetric, 2048, key.Integer[int](1, 1<<30), key.Restart,
			"Metric of the default routes of terminals; each further terminal has one more."),
	}
}

// terminalKeys are those of the context that is opened at the start.
func (s *Settings) terminalKeys() []key.Key {
	return []key.Key{
		key.Of("imsi", &s.IMSI, "", key.Optional(imsi), key.Restart,
			"The terminal whose context is opened at the start. Empty: none; isthmus sgsn attach opens more."),
		key.Of("ggsn", &s.GGSN, "", key.Optional(hostAddress), key.Restart, "Address of the GGSN."),
		key.Of("apn", &s.APN, "", key.Optional(apn), key.Restart, `Access point name, like "internet".`),
		key.Of("type", &s.Type, "v4", pdpType, key.Restart, `"v4", "v6" or "v4v6".`),
		key.Of("gtp", &s.Version, 1, key.Integer[gtp.Version](0, 1), key.Restart, "Version of GTP."),
		key.Of("gtp_fallback", &s.Fallback, false, key.Bool, key.Restart,
			"Where the GGSN does not speak GTPv1, or does not answer by it, ask by GTPv0."),
		key.Of("msisdn", &s.MSISDN, "", key.Optional(msisdn), key.Restart, "Telephone number. Empty: the digits of the IMSI."),
		key.Of("nsapi", &s.NSAPI, 5, key.Integer[uint8](5, 15), key.Restart, "Number of the context among those of the terminal."),
		key.Of("delegate", &s.Delegate, false, key.Bool, key.Restart,
			"Ask for a prefix for the networks behind the terminal, by DHCPv6, as a router does."),
		key.Of("pcscf", &s.PCSCF, false, key.Bool, key.Restart, "Ask for proxies of SIP."),
		key.Of("user", &s.User, "", key.Optional(credential), key.Restart, "User name that the access point wants. Empty: none."),
		key.Of("password", &s.Password, "", key.Optional(credential), key.Restart, "Password of that; or write a password_file."),
		key.Of("password_file", &s.PasswordFile, "", key.Optional(key.File), key.Restart, "File with the password, which others may not read. It is read at the start."),
		key.Of("auth", &s.Auth, "pap", auth, key.Restart, `How they are told: "pap", by themselves, or "chap", by what is made of them and a challenge of the terminal.`),
		key.Of("netns", &s.Netns, "", key.Optional(namespaceName), key.Restart,
			"Network namespace of the terminal: a name of ip netns, or a path. Empty: that of isthmus."),
		key.Of("tun", &s.TUN, "ue0", key.Interface, key.Restart, `TUN device of the terminal; "none" for a context without one.`),
		key.Of("link", &s.Link, "", key.Optional(key.Interface), key.Restart,
			"In place of a device: an Ethernet link of this namespace, at whose far end the terminal's own stack is. It gets its addresses by DHCP and router advertisements."),
		key.Of("resolv_conf", &s.ResolvConf, false, key.Bool, key.Restart,
			"Write the name servers to /etc/netns/NETNS/resolv.conf, which ip netns exec puts in place of /etc/resolv.conf. It is put back at the end."),
	}
}

func (s *Settings) check(c *config.Checker) {
	for i, a := range s.Local {
		if a.Is4() != s.Local[0].Is4() {
			c.Fail("local", fmt.Sprintf("%s and %s are of two families, between which no terminal can move", s.Local[0], s.Local[i]), "write an instance for each")
			return
		}
	}
	if s.IMSI == (gtp.IMSI{}) {
		return
	}
	switch {
	case !s.GGSN.IsValid():
		c.Fail("imsi", "no GGSN is named for the terminal", `write ggsn = "198.51.100.1"`)
	case s.APN == nil:
		c.Fail("imsi", "no access point is named for the terminal", `write apn = "internet"`)
	case len(s.Local) > 0 && s.GGSN.Is4() != s.Local[0].Is4():
		c.Fail("ggsn", fmt.Sprintf("%s and our address %s are of two families", s.GGSN, s.Local[0]), "write one of the same family")
	case s.Delegate && s.Type == gtp.PDPTypeIPv4:
		c.Fail("delegate", "prefixes are of IPv6, and the context is of IPv4 alone", `write type = "v6", or leave it out`)
	case s.Link != "" && s.Netns != "":
		c.Fail("link", "the link is one of isthmus' own network namespace", "leave netns out")
	case s.Password != "" && s.PasswordFile != "":
		c.Fail("password_file", "password is there, too", "leave one out")
	case s.ResolvConf && (s.Netns == "" || isPath(s.Netns)):
		c.Fail("resolv_conf", "it is for a namespace with a name", "write netns, or leave it out: the name servers stand in the log")
	}
}

func (s *Settings) claims() (claims []config.Claim) {
	for _, a := range s.Local {
		for p := range sgsn.NumPlanes {
			claims = append(claims, config.Socket{Key: "local", Protocol: "UDP", Fixed: true, At: netip.AddrPortFrom(a, p.Port())})
		}
	}
	if s.IMSI == (gtp.IMSI{}) {
		return claims
	}
	if s.Netns != "" {
		return append(claims, config.Right{Capability: unix.CAP_SYS_ADMIN, Name: "CAP_SYS_ADMIN", Purpose: "enter the network namespace of a terminal"})
	}
	if s.TUN != noDevice && s.Link == "" {
		claims = append(claims, config.Device{Key: "tun", Name: s.TUN})
	}
	return claims
}

func (s *Settings) summary() string {
	text := fmt.Sprintf("is an SGSN at %s", role.Join(s.Local))
	if s.IMSI != (gtp.IMSI{}) {
		text += fmt.Sprintf(", with terminal %s at %s of %s", s.IMSI, s.APN, s.GGSN)
	}
	return text
}

// examine looks whether this machine has the addresses, and the namespace of the terminal.
func (s *Settings) examine() []role.Finding {
	host, err := port.OpenHost()
	if err != nil {
		return role.Problems(err)
	}
	defer host.Close()
	var errs []error
	for _, a := range s.Local {
		if !host.Takes(a) {
			errs = append(errs, fmt.Errorf("no interface has the address %s: give it to one (ip address add %s/32 dev lo), or write another as local", a, a))
		}
	}
	if s.IMSI != (gtp.IMSI{}) && s.Netns != "" {
		there, err := port.OpenNamespace(s.Netns)
		if errs = append(errs, err); err == nil {
			there.Close()
		}
	}
	return role.Problems(errors.Join(errs...))
}

// first is the context that is opened at the start; ok is false if there is none.
func (s *Settings) first() (w want, ok bool, err error) {
	if s.IMSI == (gtp.IMSI{}) {
		return w, false, nil
	}
	word, err := password(s.PasswordFile)
	if err != nil {
		return w, false, err
	}
	w = want{netns: s.Netns, tun: s.TUN, wire: s.Link, resolvConf: s.ResolvConf}
	w.GGSN, w.APN, w.IMSI = s.GGSN, s.APN, s.IMSI
	w.MSISDN, _ = gtp.ParseMSISDN(cmp.Or(s.MSISDN, s.IMSI.String()))
	w.Type, w.Version, w.Fallback, w.NSAPI, w.PCSCF, w.User, w.Password = s.Type, s.Version, s.Fallback, s.NSAPI, s.PCSCF, s.User, cmp.Or(s.Password, word)
	w.Auth, w.Delegate = s.Auth, s.Delegate
	return w, true, nil
}

// engine are the settings of the engine that is started now, with a counter of the clock unless
// one is set: two starts in four minutes tell different ones unless they are in the same second.
func (s *Settings) engine(now time.Time) sgsn.Settings {
	recovery := uint8(now.Unix())
	if n, err := strconv.ParseUint(string(s.RestartCounter), 10, 8); err == nil {
		recovery = uint8(n)
	}
	return sgsn.Settings{
		Addresses: s.Local, Recovery: recovery, NoRecovery: s.RestartCounter == counterNone,
		T3Response: s.T3Response, N3Requests: s.N3Requests, EchoInterval: s.EchoInterval,
		MaxContexts: s.MaxContexts, UserSequence: s.SequenceNumbers,
	}
}
