// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/config/key"
)

// noDevice stands in place of the name of a TUN device for contexts without one.
const noDevice = "none"

// want is a context that is to be opened, and what its terminal is to have on this host.
type want struct {
	sgsn.Attachment
	netns, tun string
	wire       string // in place of a device
	resolvConf bool
}

// hostAddress parses an address of a host, of either family.
var hostAddress = key.Text("192.0.2.1", func(s string) (netip.Addr, *key.Fault) {
	if strings.Contains(s, ":") {
		return key.Address6(s)
	}
	return key.Address4(s)
})

var imsi = key.Text("240010123456789", func(s string) (gtp.IMSI, *key.Fault) {
	m, err := gtp.ParseIMSI(s)
	if err != nil {
		return m, key.Wrong("write its digits, like 240010123456789", "%s", err)
	}
	return m, nil
})

var msisdn = key.Text("46702123456", func(s string) (string, *key.Fault) {
	if _, err := gtp.ParseMSISDN(s); err != nil {
		return "", key.Wrong("write its digits with those of the country, like 46702123456", "%s", err)
	}
	return s, nil
})

var apn = key.Text("internet", func(s string) (gtp.APN, *key.Fault) {
	a, err := gtp.ParseAPN(s)
	if err != nil {
		return nil, key.Wrong("write a name like internet", "%s", err)
	}
	return a, nil
})

var pdpTypes = map[string]gtp.PDPType{"v4": gtp.PDPTypeIPv4, "v6": gtp.PDPTypeIPv6, "v4v6": gtp.PDPTypeIPv4v6}

var pdpType = key.Text("v4", func(s string) (gtp.PDPType, *key.Fault) {
	t, ok := pdpTypes[s]
	if !ok {
		return 0, key.Wrong(`write "v4", "v6" or "v4v6"`, "%q is no type of PDP context", s)
	}
	return t, nil
})

var restartCounter = key.Text(string(counterAuto), func(s string) (counter, *key.Fault) {
	if _, err := strconv.ParseUint(s, 10, 8); err != nil && counter(s) != counterAuto && counter(s) != counterClock && counter(s) != counterNone {
		return "", key.Wrong(`write "auto", "clock", "none" or a number to "255"`, "%q is no restart counter", s)
	}
	return counter(s), nil
})

var auth = key.Text("pap", func(s string) (sgsn.Auth, *key.Fault) {
	switch s {
	case "pap":
		return sgsn.AuthPAP, nil
	case "chap":
		return sgsn.AuthCHAP, nil
	}
	return 0, key.Wrong(`write "pap" or "chap"`, "%q is no way to tell a password", s)
})

// password reads the file of one; of no file it is empty.
func password(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	const most = 256
	text, err := config.ReadPrivate(file, most)
	if err != nil {
		return "", err
	}
	word, fault := credential(strings.TrimRight(string(text), "\r\n"))
	if fault != nil {
		return "", fmt.Errorf("%s: %w", file, fault.Err())
	}
	return word, nil
}

// credential parses a user name or a password: PAP has an octet for its length, and the options
// hold little more (RFC 1334 section 2.2.1).
var credential = key.Text("user", func(s string) (string, *key.Fault) {
	if len(s) > 64 {
		return "", key.Wrong("write 64 octets at most", "this has %d octets", len(s))
	}
	return s, nil
})

func isPath(netns string) bool { return strings.HasPrefix(netns, "/") }

var namespaceName = key.Text("ue", func(s string) (string, *key.Fault) {
	if s == "." || s == ".." || strings.ContainsAny(s, "\x00 \n") || !isPath(s) && strings.Contains(s, "/") {
		return "", key.Wrong("write a name of ip netns, or an absolute path", "%q is no network namespace", s)
	}
	return s, nil
})

// Terminal are the flags and arguments that say what context is wanted.
type Terminal struct {
	GGSN     string `name:"ggsn" json:"ggsn" required:"" placeholder:"ADDRESS" help:"The GGSN."`
	APN      string `name:"apn" json:"apn" required:"" placeholder:"NAME" help:"Access point name."`
	Type     string `json:"type" enum:"v4,v6,v4v6" default:"v4" help:"v4, v6 or v4v6 (${default})."`
	IMSI     string `name:"imsi" json:"imsi" required:"" placeholder:"DIGITS" help:"Identity of the subscriber."`
	MSISDN   string `name:"msisdn" json:"msisdn" placeholder:"DIGITS" help:"Telephone number (the digits of the IMSI)."`
	GTP      uint8  `name:"gtp" json:"gtp" enum:"0,1" default:"1" help:"Version of GTP (${default})."`
	Fallback bool   `name:"gtp-fallback" json:"gtp_fallback" help:"Where the GGSN does not speak GTPv1, or does not answer by it, ask by GTPv0."`
	NSAPI    uint8  `name:"nsapi" json:"nsapi" default:"5" placeholder:"N" help:"Number of the context among those of the terminal, 5 to 15 (${default})."`
	Delegate bool   `json:"delegate" help:"Ask for a prefix for the networks behind the terminal, by DHCPv6, as a router does."`
	PCSCF    bool   `name:"pcscf" json:"pcscf" help:"Ask for proxies of SIP, too."`
	User     string `json:"user" placeholder:"NAME" help:"User name, if the access point wants one."`
	Password string `json:"password" secret:"" placeholder:"TEXT" help:"Password. All users of this host see it in the list of processes: --password-file hides it."`
	// PasswordFile is read by whoever gives the order.
	PasswordFile string `json:"-" placeholder:"PATH" help:"File with the password, which others may not read."`
	Auth         string `json:"auth" enum:"pap,chap" default:"pap" help:"How they are told: pap or chap (${default})."`
	Netns        string `json:"netns" placeholder:"NAME" help:"Network namespace of the terminal: a name of ip netns, or a path (that of isthmus)."`
	TUN          string `name:"tun" json:"tun" default:"ue0" placeholder:"DEVICE" help:"TUN device of the terminal, which contexts may share; 'none' for a context without (${default})."`
	Link         string `json:"link" placeholder:"LINK" help:"In place of a device: an Ethernet link here, at whose far end the terminal's own stack is. It gets its addresses by DHCP and router advertisements."`
	ResolvConf   bool   `name:"resolv-conf" json:"resolv_conf" help:"Write the name servers to /etc/netns/NETNS/resolv.conf, and put that back at the end."`
}

// Validate has kong refuse what is no context.
func (t Terminal) Validate() error {
	_, err := t.want()
	return err
}

// want reads the flags.
func (t Terminal) want() (w want, err error) {
	var errs []error
	read(&w.GGSN, &errs, hostAddress, t.GGSN)
	read(&w.APN, &errs, apn, t.APN)
	read(&w.Type, &errs, pdpType, t.Type)
	read(&w.IMSI, &errs, imsi, t.IMSI)
	digits := t.MSISDN
	read(&digits, &errs, key.Optional(msisdn), t.MSISDN)
	w.MSISDN, _ = gtp.ParseMSISDN(cmp.Or(digits, t.IMSI))
	read(&w.Version, &errs, key.Integer[gtp.Version](0, 1), int64(t.GTP))
	read(&w.NSAPI, &errs, key.Integer[uint8](5, 15), int64(t.NSAPI))
	read(&w.User, &errs, key.Optional(credential), t.User)
	read(&w.Password, &errs, key.Optional(credential), t.Password)
	read(&w.netns, &errs, key.Optional(namespaceName), t.Netns)
	read(&w.tun, &errs, key.Interface, t.TUN)
	read(&w.wire, &errs, key.Optional(key.Interface), t.Link)
	w.Fallback = t.Fallback
	read(&w.Auth, &errs, auth, cmp.Or(t.Auth, "pap"))
	w.PCSCF, w.Delegate, w.resolvConf = t.PCSCF, t.Delegate, t.ResolvConf
	if t.Delegate && t.Type == "v4" {
		errs = append(errs, errors.New("--delegate is for IPv6: write --type v6 or v4v6"))
	}
	if t.Link != "" && t.Netns != "" {
		errs = append(errs, errors.New("--link is one of isthmus' own network namespace: leave --netns out"))
	}
	if t.Password != "" && t.PasswordFile != "" {
		errs = append(errs, errors.New("--password and --password-file are two passwords: leave one out"))
	}
	if t.ResolvConf && (t.Netns == "" || isPath(t.Netns)) {
		errs = append(errs, errors.New("--resolv-conf is for a --netns with a name"))
	}
	return w, errors.Join(errs...)
}

// read parses one flag as the key of a file is.
func read[T any](into *T, errs *[]error, parse key.Parser[T], raw any) {
	value, fault := parse(raw)
	if fault != nil {
		*errs = append(*errs, fault.Err())
		return
	}
	*into = value
}
