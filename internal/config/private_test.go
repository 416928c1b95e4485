// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io/fs"
	"os/user"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSecretIsHidden(t *testing.T) {
	const someSecret = "correct horse battery staple"
	k := struct{ Secret }{someSecret}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if text := fmt.Sprintf(verb, k); strings.Contains(text, someSecret) {
			t.Errorf("%s shows %s", verb, text)
		}
	}
}

// TestOwnerOfSecrets has the user of the process and, for root, that of the service own secrets, beside root.
func TestOwnerOfSecrets(t *testing.T) {
	as := func(uid string) func() *user.User {
		return func() *user.User { return &user.User{Uid: uid, Gid: "4294967294", Username: "gateway"} }
	}
	none := func() *user.User { return nil }
	const remedy = "/s holds secrets, but belongs neither to root nor to gateway, as whom isthmus runs: run chown root:4294967294 /s, then chmod 640 /s"
	for _, tt := range []struct {
		name      string
		uid, euid int
		runsAs    func() *user.User
		want      string
	}{
		{"root's, for root", 0, 0, none, ""},
		{"root's, for the service", 0, 990, as("990"), ""},
		{"the service's, for itself", 990, 990, as("990"), ""},
		{"the service's, for root", 990, 0, as("990"), ""},
		{"someone's, for root", 1000, 0, as("990"), remedy},
		{"someone's, for root, without a service", 1000, 0, none, "/s holds secrets, but does not belong to root: run chown root /s, then chmod 600 /s"},
		{"someone's, for root, whose service is root's, too", 1000, 0, as("0"), "/s holds secrets, but does not belong to root: run chown root /s, then chmod 600 /s"},
		{"someone's, for the service", 1000, 990, as("990"), remedy},
		{"the service's, for someone", 990, 1000, as("1000"), remedy},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := checkOwner("/s", tt.uid, tt.euid, tt.runsAs); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// owned is a file of mode 600 of some user.
type owned struct{ uid uint32 }

func (owned) Name() string       { return "secret" }
func (owned) Size() int64        { return 0 }
func (owned) Mode() fs.FileMode  { return 0o600 }
func (owned) ModTime() time.Time { return time.Time{} }
func (owned) IsDir() bool        { return false }
func (o owned) Sys() any         { return &syscall.Stat_t{Uid: o.uid} }

// TestSecretsOfOthers: a file of a user who is neither root nor whom isthmus runs as holds no secrets.
func TestSecretsOfOthers(t *testing.T) {
	if err := CheckPrivate("/etc/isthmus/secret", owned{1<<32 - 2}); err == nil || !strings.Contains(err.Error(), "run chown root") {
		t.Errorf("error %v", err)
	}
}
