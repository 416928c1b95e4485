// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/isthmus-net/isthmus/internal/config"
	"github.com/isthmus-net/isthmus/internal/port"
	"github.com/isthmus-net/isthmus/internal/role"
)

// interfaces are the devices, of which a network is known by its number: the section's own
// comes first if an access point has it.
func (s *Settings) interfaces() (list []string) {
	seen := map[string]bool{}
	for _, first := range []bool{true, false} {
		for i := range s.APNs {
			if link := s.device(&s.APNs[i]); (link == s.Interface) == first && !seen[link] {
				seen[link] = true
				list = append(list, link)
			}
		}
	}
	return list
}

// device is that of an access point. Those of one VRF have one.
func (s *Settings) device(a *APN) string {
	switch {
	case a.Interface != "":
		return a.Interface
	case a.VRF == "":
		return s.Interface
	}
	for i := range s.APNs {
		if b := &s.APNs[i]; b.VRF == a.VRF && b.Interface != "" {
			return b.Interface
		}
	}
	return s.Interface + "-" + a.VRF
}

// vrfs are those of devices; empty is none.
func (s *Settings) vrfs(devices []string) []string {
	list := make([]string, len(devices))
	for n, device := range devices {
		for i := range s.APNs {
			if a := &s.APNs[i]; s.device(a) == device {
				list[n] = a.VRF
				break
			}
		}
	}
	return list
}

// checkNetwork wants one device for each VRF, and one VRF for each device.
func (s *Settings) checkNetwork(c *config.Checker, i int) {
	a, path := &s.APNs[i], fmt.Sprintf("apn[%d]", i)
	if !c.OK(path+".vrf", path+".interface") {
		return
	}
	at := path + ".vrf"
	if a.VRF == "" {
		at = path + ".interface"
	}
	device := s.device(a)
	if len(device) >= unix.IFNAMSIZ {
		c.Fail(at, fmt.Sprintf("the TUN device of the VRF would be %s, which is longer than %d letters", device, unix.IFNAMSIZ-1), `add interface = "…" to this access point`)
	}
	if slices.ContainsFunc(s.APNs, func(b APN) bool { return b.VRF == device }) {
		c.Fail(path+".interface", fmt.Sprintf("%s is the name of a VRF, and cannot be that of a TUN device, too", device), "write another name")
		return
	}
	for j := range s.APNs[:i] {
		switch b := &s.APNs[j]; {
		case s.device(b) == device && b.VRF == a.VRF, s.device(b) != device && (b.VRF != a.VRF || a.VRF == ""):
		case s.device(b) == device:
			c.Fail(at, fmt.Sprintf("%s shares the interface %s, and would be in another VRF", b.Name, device), "write the same vrf for both, or give each an interface of its own")
			return
		default:
			c.Fail(path+".interface", fmt.Sprintf("%s has the interface %s in the VRF %s", b.Name, s.device(b), b.VRF), "write the same interface for both, since access points of one VRF share it")
			return
		}
	}
}

// apart reports whether an access point is in a VRF.
func (s *Settings) apart() bool {
	return slices.ContainsFunc(s.APNs, func(a APN) bool { return a.VRF != "" })
}

// exposed says in sentences what of this host terminals reach who are in VRFs.
func (s *Settings) exposed() (list []string) {
	if !s.apart() {
		return nil
	}
	host, err := port.OpenHost()
	if err != nil {
		return nil // examine tells of that
	}
	defer host.Close()
	if first, _ := host.LocalFirst(); first {
		list = append(list, "terminals in VRFs find this host at all its addresses, also those outside, and not who has the same in their network: "+
			"run ip rule add pref 32765 table local && ip rule del pref 0, and ip -6 rule likewise")
	}
	return list
}

// clean removes the refusals that nodes which did not come back have left in the tables of VRFs, whichever a
// configuration names.
func clean([]*Settings) (c role.Cleaned, err error) {
	host, err := port.OpenHost()
	if err != nil {
		return c, err
	}
	defer host.Abandon()
	c.Removed, c.InUse, err = host.RemoveLeftRefusals()
	return c, err
}
