// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/internal/config/key"
)

// echo are the settings of a toy: it answers by UDP what it is sent.
type echo struct {
	Name     string
	Port     uint16
	Words    []string
	Greeting string
	Prefixes []netip.Prefix
}

func (e *echo) keys() []key.Key {
	return []key.Key{
		key.Of("name", &e.Name, "echo", key.InstanceName, key.Identity, "Its name."),
		key.Of("port", &e.Port, key.MustSet(7), key.Integer[uint16](1, 65535), key.Restart, "The port."),
		key.Of("words", &e.Words, []string{"a", "b"}, key.List(key.InstanceName), key.Live, "What it answers."),
		key.Of("greeting", &e.Greeting, &e.Name, key.InstanceName, key.Live, "What it says first: its name."),
		key.Of("prefixes", &e.Prefixes, []string{}, key.List(key.Prefix6), key.Live, "Whose it is."),
	}
}

var echoSection = SectionOf[echo]{
	Name: "echo", Help: "A toy.", Keys: (*echo).keys,
	Check: func(e *echo, c *Checker) {
		if e.Port == 0 && c.OK("port") {
			c.Fail("", "this echo has no port", "add port = 7")
		}
		if len(e.Words) > int(e.Port) && c.OK("words", "port") {
			c.Fail("words", "there are more words than the port's number", "take a higher port")
		}
	},
	Claims: func(e *echo) []Claim {
		return []Claim{Socket{Key: "port", Protocol: "UDP", At: netip.AddrPortFrom(netip.IPv4Unspecified(), e.Port)}}
	},
	Take: func(e *echo, offers []any) {
		for _, p := range Offered[offered](offers) {
			e.Prefixes = append(e.Prefixes, p...)
		}
	},
}.Section()

// network are the settings of another toy: it has prefixes, and offers them.
type network struct {
	Name     string
	Prefixes []netip.Prefix
	Announce bool
}

type offered []netip.Prefix

func (n *network) keys() []key.Key {
	return []key.Key{
		key.Of("name", &n.Name, "network", key.InstanceName, key.Identity, "Its name."),
		key.Of("prefixes", &n.Prefixes, key.Example([]string{"2001:db8::/32"}), key.List(key.Prefix), key.Live, "What it has."),
		key.Of("announce", &n.Announce, false, key.Bool, key.Restart, "Whether routers are told."),
	}
}

var networkSection = SectionOf[network]{
	Name: "network", Help: "Another toy.", Keys: (*network).keys,
	Claims: func(n *network) []Claim {
		claims := []Claim{Route{Key: "prefixes", Prefixes: n.Prefixes, Set: true, Remedy: "take another"}}
		if n.Announce {
			claims = append(claims, Announced{"announce", n.Prefixes})
		}
		return claims
	},
	Offers: func(n *network) []any { return []any{offered(n.Prefixes)} },
}.Section()

func parseEcho(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse(strings.NewReader(text), "isthmus.toml", echoSection, networkSection)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDeclared reads sections that were declared beside others.
func TestDeclared(t *testing.T) {
	c := parseEcho(t, `
		[[echo]]
		port = 7
		[[echo]]
		name = "second"
		port = 8
		words = "one"
		[[network]]
		prefixes = "2001:db8:64::/96"`)
	prefixes := []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}
	for _, want := range []*echo{
		{Name: "echo", Greeting: "echo", Port: 7, Words: []string{"a", "b"}, Prefixes: prefixes},
		{Name: "second", Greeting: "second", Port: 8, Words: []string{"one"}, Prefixes: prefixes},
	} {
		got, ok := c.Find("echo", want.Name)
		if diff := cmp.Diff(want, got.Settings, same); !ok || diff != "" {
			t.Errorf("%v (-want +got):\n%s", ok, diff)
		}
	}
	if c.Count() != 3 {
		t.Errorf("%d instances", c.Count())
	}
}

// TestDeclaredErrors compares the errors of declared sections with what people read.
func TestDeclaredErrors(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"single brackets", "[echo]\nport = 7", "isthmus.toml:1:2: echo: there can be several of this section: write [[echo]]"},
		{"a list of text", `echo = ["x"]`, "isthmus.toml:1:9: echo: this is text where a section is wanted: write [[echo]] on a line of its own and its keys below"},
		{"a key that is not there", "[[echo]]\nport = 7\n\nprot = 8", "isthmus.toml:4:1: echo.prot: there is no such key: did you mean port?"},
		{"a table that is not there", "[[echo]]\nport = 7\n[echo.colour]\nx = 1", "isthmus.toml:3:2: echo.colour: there is no such key: isthmus init reference lists the keys of this section"},
		{"capitals", "[[echo]]\nPort = 7", "isthmus.toml:2:8: echo.Port: keys and sections are written in small letters: write port"},
		{"an element", "[[echo]]\nport = 7\nwords = [\"a\", 5]", "isthmus.toml:3:15: echo.words: this is a number where text is wanted: write it in quotes, like \"north\""},
		{"a check", "[[echo]]\nname = \"x\"", "isthmus.toml:1:3: echo: this echo has no port: add port = 7"},
		{"no check of what is wrong already", "[[echo]]\nport = 0", "isthmus.toml:2:8: echo.port: 0 is out of range: write a number from 1 to 65535"},
		{"a port of another", "[[echo]]\nport = 3544\n[[echo]]\nname = \"x\"\nport = 3544", "isthmus.toml:5:8: echo.port: UDP 0.0.0.0:3544 is also bound by echo \"echo\": choose another port or address"},
		{"a name of another", "[[echo]]\nname = \"network\"\nport = 7\n[[network]]", "isthmus.toml:4:3: network.name: \"network\" is also the name of a echo: give each instance a name = \"…\" of its own"},
		{"a destination of another", "[[network]]\nprefixes = \"2001:db8::/32\"\n[[network]]\nname = \"x\"\nprefixes = \"2001:db8:1::/48\"", "isthmus.toml:5:12: network.prefixes: 2001:db8:1::/48 overlaps 2001:db8::/32 of network \"network\": take another"},
		{"a number that is none", "[[echo]]\nport = 99999999999999999999", "isthmus.toml:2:8: this is not TOML: decimal number is too large to fit in a 64-bit signed integer: write key = value, one a line, with text in \"double quotes\""},
		{"a date that is none", "[[echo]]\nport = 2026-02-31", "isthmus.toml:2:16: this is not TOML: impossible date: write key = value, one a line, with text in \"double quotes\""},
		{"an unknown section", "[[ecko]]\nport = 7", "isthmus.toml:1:3: ecko: there is no such section: did you mean echo?"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse(strings.NewReader(tt.text), "isthmus.toml", echoSection, networkSection)
			if err == nil {
				t.Fatal("no error")
			}
			if got, _, _ := strings.Cut(err.Error(), "\n"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// TestReference writes a section as people read it.
func TestReference(t *testing.T) {
	const want = `# A toy.
[[echo]]
# Its name.
name = "echo"
# The port. Must be set.
port = 7
# What it answers. Live.
words = ["a", "b"]
# What it says first: its name. Live.
greeting = "echo"
# Whose it is. Live.
prefixes = []
`
	if diff := cmp.Diff(want, echoSection.Reference()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("# A toy.\n[[echo]]\n# The port. Must be set.\nport = 7\n", echoSection.Smallest()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
