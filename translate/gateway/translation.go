// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"github.com/isthmus-net/isthmus/translate"
	"github.com/isthmus-net/isthmus/translate/keys"
)

// Settings turns the common keys into those of package translate.
func Settings(c *keys.Translation, at Own) (translate.Settings, error) {
	s := translate.Settings{
		NonGlobal: c.AllowNonGlobal, Pool4: c.RouterPool4, Pool6: c.RouterPool6,
		InterfaceObject: c.InterfaceObject, ZeroTrafficClass: c.TrafficClass != keys.Copied,
		LowestIPv6MTU: c.LowestIPv6MTU,
	}
	s.Own4, s.Own6 = at.Sources(c)
	if len(c.Plateaus) > 0 {
		s.Plateaus = c.Plateaus
	}
	if c.TOS != keys.Copied {
		s.FixedTOS, s.TOS = true, uint8(c.TOS)
	}
	switch c.UDPZeroChecksum {
	case keys.ZeroChecksumCompute:
		s.UDPZeroChecksum = translate.ZeroChecksumCompute
	case keys.ZeroChecksumForward:
		s.UDPZeroChecksum = translate.ZeroChecksumForward
	}
	for _, p := range c.Pool6 {
		prefix, err := translate.NewPrefix(p)
		if err != nil {
			return s, err
		}
		s.Prefixes = append(s.Prefixes, prefix)
	}
	return s, nil
}
