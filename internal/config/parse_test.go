// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// same compares checked values; addresses by their own equality.
var same = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{}, netip.Prefix{}),
	cmpopts.EquateEmpty(),
}

func parse(t *testing.T, text string) *Config {
	t.Helper()
	config, err := Parse(strings.NewReader(text), "isthmus.toml", echoSection, networkSection)
	if err != nil {
		t.Fatalf("Parse:\n%v", err)
	}
	return config
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       Config
	}{
		{"empty file", "", Default()},
		{"process sections", `
			control = { socket = "" }
			[metrics]
			listen = "[::1]:9464"
			[log]
			level = "debug"
			format = "json"`,
			Config{
				Announce: DefaultAnnounce(),
				Control:  Control{Mode: 0o660},
				Metrics:  Metrics{Listen: netip.MustParseAddrPort("[::1]:9464")},
				Log:      Log{Level: slog.LevelDebug, Format: FormatJSON},
			}},
		{"control in octal", "[control]\nmode = 0o600\ngroup = \"isthmus\"", func() Config {
			c := Default()
			c.Control.Mode, c.Control.Group = fs.FileMode(0o600), "isthmus"
			return c
		}()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(&tt.want, parse(t, tt.text), same); diff != "" {
				t.Errorf("configuration differs (-want +got):\n%s", diff)
			}
		})
	}
}

// Some editors put a byte-order mark in front; places are counted without it.
func TestParseByteOrderMark(t *testing.T) {
	if c := parse(t, "\ufeff[log]\nlevel = \"warn\"\n"); c.Log.Level != slog.LevelWarn {
		t.Errorf("level %v", c.Log.Level)
	}
	_, err := Parse(strings.NewReader("\ufeff[logs]\n"), "isthmus.toml")
	var one *Error
	if !errors.As(err, &one) || one.Line != 1 || one.Column != 2 {
		t.Errorf("error %v", err)
	}
}

func TestParseTooLarge(t *testing.T) {
	_, err := Parse(strings.NewReader(strings.Repeat("#", maxSize+1)), "dev.img")
	if err == nil || !strings.Contains(err.Error(), "dev.img is larger than 4 MiB") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.toml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("[[echo]]\r\nport = 7\r\n[[network]]\nprefixes = [\"192.0.2.1/32\"]")
	f.Add("a.b.c = 1\n[a]\nb = [[1], {x = 2}]")
	f.Fuzz(func(t *testing.T, text string) {
		config, err := Parse(strings.NewReader(text), "isthmus.toml", echoSection, networkSection)
		if (config == nil) == (err == nil) {
			t.Fatalf("config %v with error %v", config, err)
		}
		var list Errors
		if errors.As(err, &list) && list.Error() == "" {
			t.Error("errors without text")
		}
	})
}
