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

// TestOwnerOfSecrets has root accept files of the packaged service, and no one else.
func TestOwnerOfSecrets(t *testing.T) {
	service := func(name string) (*user.User, error) {
		if name != "isthmus" {
			return nil, user.UnknownUserError(name)
		}
		return &user.User{Uid: "990"}, nil
	}
	none := func(name string) (*user.User, error) { return nil, user.UnknownUserError(name) }
	for _, tt := range []struct {
		name      string
		uid, euid int
		lookup    func(string) (*user.User, error)
		want      bool
	}{
		{"root's, for root", 0, 0, none, true},
		{"root's, for the service", 0, 990, none, true},
		{"the service's, for itself", 990, 990, none, true},
		{"the service's, for root", 990, 0, service, true},
		{"someone's, for root", 1000, 0, service, false},
		{"someone's, for root, without a service", 1000, 0, none, false},
		{"someone's, for the service", 1000, 990, service, false},
		{"the service's, for someone", 990, 1000, service, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := mayOwn(tt.uid, tt.euid, tt.lookup); got != tt.want {
				t.Errorf("%t, want %t", got, tt.want)
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

// TestRemedyForOwner names a remedy after which the service can read the file, too.
func TestRemedyForOwner(t *testing.T) {
	err := CheckPrivate("/etc/isthmus/secret", owned{1<<32 - 2})
	const want = "/etc/isthmus/secret holds secrets, but belongs to another user: " +
		"run chown root:isthmus /etc/isthmus/secret, then chmod 640 /etc/isthmus/secret; without that group, chown root"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
