// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/message"
)

// Settings are those of a registrar.
type Settings struct {
	// Domains are those whose addresses of record are registered, in small letters; the first
	// is the realm of challenges.
	Domains []string
	// Hosts are names and addresses by which the server itself is reached.
	Hosts    []string
	Accounts []Account
	// Algorithms are those of challenges to who has a password, the preferred one first.
	Algorithms []digest.Algorithm
	// MinExpires, MaxExpires and DefaultExpires are lifetimes of bindings.
	MinExpires, MaxExpires, DefaultExpires time.Duration
	// NonceLife is how long a nonce is good, MaxNonces how many that were used are remembered.
	NonceLife time.Duration
	MaxNonces int
	// ServiceRoute is what user agents are told to route by (RFC 3608).
	ServiceRoute []string
	Limits       location.Limits
}

// Defaults are settings without domains and accounts.
func Defaults() Settings {
	return Settings{
		Algorithms: []digest.Algorithm{digest.SHA256, digest.MD5},
		MinExpires: time.Minute, MaxExpires: 24 * time.Hour, DefaultExpires: time.Hour,
		NonceLife: 5 * time.Minute, MaxNonces: 1 << 16, Limits: location.DefaultLimits(),
	}
}

// Account is who may register.
type Account struct {
	// Username is the name in digests, Public are the addresses of record as SIP, SIPS or tel
	// URIs, of which the first stands for all.
	Username string
	Public   []string
	// HA1 is what is kept of the password, by algorithm.
	HA1 map[digest.Algorithm]string
	// Milenage, AMF and SQN are those of AKA; Milenage nil: there is none.
	Milenage *aka.Milenage
	AMF      aka.AMF
	SQN      aka.SQN
	// Server is the SIP URI of the registrar that serves the account; empty: this one does.
	Server string
}

// account is an account with its addresses of record.
type account struct {
	Account
	aors []string
}

// directory finds accounts by name and by address of record.
type directory struct {
	byName, byAOR map[string]*account
}

func newDirectory(accounts []Account) (d directory, err error) {
	d = directory{map[string]*account{}, map[string]*account{}}
	for _, one := range accounts {
		a := &account{Account: one}
		if a.Username == "" || d.byName[a.Username] != nil {
			return d, fmt.Errorf("the name %q in digests is empty, or that of two accounts", a.Username)
		}
		d.byName[a.Username] = a
		for i, public := range one.Public {
			u, err := message.ParseURI(public)
			if err != nil {
				return d, err
			}
			aor, ok := AOR(&u)
			if slices.Contains(a.aors, aor) && !slices.Contains(one.Public[:i], public) {
				continue // under sip and sips
			}
			if !ok || d.byAOR[aor] != nil {
				return d, fmt.Errorf("%s cannot be an address of record, or is that of two accounts", public)
			}
			a.aors = append(a.aors, aor)
			d.byAOR[aor] = a
		}
	}
	return d, nil
}

// check finds settings that could not work.
func (s *Settings) check() error {
	switch {
	case len(s.Domains) == 0:
		return errors.New("there is no domain")
	case s.MinExpires > s.DefaultExpires || s.DefaultExpires > s.MaxExpires:
		return errors.New("the default lifetime is not between the least and the longest")
	case s.MaxNonces < 1 || s.NonceLife <= 0:
		return errors.New("no nonce could be used")
	}
	for _, a := range s.Algorithms {
		if _, ok := digest.ParseAlgorithm(string(a)); !ok || a == digest.AKAv1MD5 {
			return fmt.Errorf("%s is no algorithm of passwords", a)
		}
	}
	return nil
}

// serves reports whether a host is that of a domain.
func (s *Settings) serves(host string) bool {
	for _, d := range s.Domains {
		if strings.EqualFold(d, host) {
			return true
		}
	}
	return false
}
