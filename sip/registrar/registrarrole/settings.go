// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package registrarrole

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/isthmus-net/isthmus/internal/subscriber"
	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/digest"
	"github.com/isthmus-net/isthmus/sip/location"
	"github.com/isthmus-net/isthmus/sip/registrar"
)

// prepared is what a configuration and the files that it names come to.
type prepared struct {
	engine registrar.Settings
	proxy  registrar.ProxySettings
	secure secure
}

// prepare reads the files that a configuration names.
func prepare(s *Settings) (p prepared, err error) {
	accounts, errAccounts := readAccounts(s)
	secure, errSecure := readSecure(s)
	p = prepared{engine: engineSettings(s), proxy: proxySettings(s), secure: secure}
	p.engine.Accounts = accounts
	return p, errors.Join(errAccounts, errSecure)
}

// engineSettings turns a configuration into the registrar's settings, without accounts.
func engineSettings(s *Settings) registrar.Settings {
	e := registrar.Defaults()
	e.Domains, e.Hosts, e.Algorithms, e.NonceLife = s.Domains, s.Hosts, s.Algorithms, s.NonceLife
	for _, at := range s.Listen {
		e.Hosts = append(e.Hosts[:len(e.Hosts):len(e.Hosts)], at.Addr().String())
	}
	e.MinExpires, e.DefaultExpires, e.MaxExpires = s.ExpiresMin, s.ExpiresDefault, s.ExpiresMax
	for _, uri := range s.ServiceRoute {
		if !strings.Contains(uri, ";lr") {
			uri += ";lr"
		}
		e.ServiceRoute = append(e.ServiceRoute, "<"+uri+">")
	}
	e.Limits = location.Limits{Bindings: s.MaxBindings, PerAOR: s.BindingsPerAddress, BindingSize: e.Limits.BindingSize}
	return e
}

// proxySettings turns a configuration into the proxy's settings.
func proxySettings(s *Settings) registrar.ProxySettings {
	p := registrar.ProxyDefaults()
	p.Listeners = listeners(s)
	p.Redirect, p.Prove, p.RecordRoute = s.Mode == Redirect, s.ProveCallers, s.RecordRoute
	p.Trusted, p.NextHop, p.ICSCF = s.Trusted, s.NextHop, s.ICSCF
	p.TimerC, p.MaxForks, p.MTU = s.RingTimeout, s.MaxForks, s.MTU
	p.Transactions.Servers, p.Transactions.Clients = s.MaxTransactions, s.MaxTransactions
	p.Transactions.PerSource = s.TransactionsPerSource
	return p
}

// listeners are those of a configuration: first UDP, in the order of their sockets.
func listeners(s *Settings) (list []registrar.Listener) {
	for _, of := range []struct {
		transport string
		at        []netip.AddrPort
	}{{"UDP", s.Listen}, {"TCP", s.Listen}, {"TLS", s.ListenTLS}} {
		for _, at := range of.at {
			list = append(list, registrar.Listener{Transport: of.transport, Address: at})
		}
	}
	return list
}

// readAccounts reads who may register.
func readAccounts(s *Settings) (list []registrar.Account, err error) {
	if s.SubscribersFile == "" {
		return nil, nil
	}
	file, err := subscriber.Read(s.SubscribersFile)
	if err != nil {
		return nil, err
	}
	for _, one := range file.All {
		if one.PrivateID == "" { // of a mobile network alone
			continue
		}
		a := registrar.Account{
			Username: one.PrivateID, Public: one.PublicIDs, HA1: digests(one, s.Domains[0]),
			AMF: one.AMF, SQN: aka.SQN(one.SQN), Server: one.SCSCF,
		}
		if one.HasAKA() {
			a.Milenage = aka.MilenageOf(aka.Key(*one.K), (*aka.Key)(one.OP), (*aka.Key)(one.OPc))
		}
		list = append(list, a)
	}
	if _, err := registrar.New(withAccounts(s, list), zeros{}); err != nil {
		return nil, fmt.Errorf("%s: %w", s.SubscribersFile, err)
	}
	return list, nil
}

func withAccounts(s *Settings, list []registrar.Account) registrar.Settings {
	e := engineSettings(s)
	e.Accounts = list
	return e
}

// zeros are random numbers of a registrar that is only tried.
type zeros struct{}

// Read implements [io.Reader].
func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// digests are what is kept of a password, by algorithm.
func digests(s *subscriber.Subscriber, realm string) map[digest.Algorithm]string {
	all := map[digest.Algorithm]string{}
	if s.Password != "" {
		for _, a := range []digest.Algorithm{digest.MD5, digest.SHA256, digest.SHA512256} {
			all[a] = a.HA1(s.PrivateID, realm, string(s.Password))
		}
	}
	if s.HA1 != "" {
		all[digest.MD5] = string(s.HA1)
	}
	if s.HA1SHA256 != "" {
		all[digest.SHA256] = string(s.HA1SHA256)
	}
	return all
}
