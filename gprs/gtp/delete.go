// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

// DeleteRequest ends a context, or with Teardown all that share its control TEID (TS
// 29.060 section 7.3.5). In version 0 the TID in the header says which, and there are
// no elements (TS 09.60 section 7.5.5).
type DeleteRequest struct {
	Cause         Optional[Cause]
	Teardown      Optional[bool]
	NSAPI         uint8
	PCO           Optional[PCO]
	Location      Optional[Location]
	TimeZone      Optional[TimeZone]
	ExtendedFlags Optional[uint8]
	LocationTime  Optional[uint32] // seconds since 1900
	Private       Optional[PrivateExtension]
}

// Type returns [TypeDeleteRequest].
func (*DeleteRequest) Type() MessageType { return TypeDeleteRequest }

func (m *DeleteRequest) walk(w *walk) {
	if w.version == V0 {
		if !w.writing {
			*m = DeleteRequest{}
		}
	} else {
		element(w, ElementCause, optional, &m.Cause, cause)
		element(w, ElementTeardown, conditional, &m.Teardown, flag)
		value(w, ElementNSAPI, &m.NSAPI, nsapi)
		element(w, ElementPCO, optional, &m.PCO, pco)
		element(w, ElementLocation, optional, &m.Location, location)
		element(w, ElementTimeZone, optional, &m.TimeZone, timeZone)
		element(w, ElementExtendedFlags, optional, &m.ExtendedFlags, octet)
		element(w, ElementLocationTime, optional, &m.LocationTime, uint32s)
	}
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// DeleteResponse answers a [DeleteRequest] (TS 29.060 section 7.3.6). Version 0 has
// cause and private extension alone.
type DeleteResponse struct {
	Cause        Cause
	PCO          Optional[PCO]
	Location     Optional[Location]
	TimeZone     Optional[TimeZone]
	LocationTime Optional[uint32] // seconds since 1900
	Private      Optional[PrivateExtension]
}

// Type returns [TypeDeleteResponse].
func (*DeleteResponse) Type() MessageType { return TypeDeleteResponse }

func (m *DeleteResponse) walk(w *walk) {
	value(w, ElementCause, &m.Cause, cause)
	if w.version == V1 {
		element(w, ElementPCO, optional, &m.PCO, pco)
		element(w, ElementLocation, optional, &m.Location, location)
		element(w, ElementTimeZone, optional, &m.TimeZone, timeZone)
		element(w, ElementLocationTime, optional, &m.LocationTime, uint32s)
	} else if !w.writing {
		*m = DeleteResponse{Cause: m.Cause}
	}
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}
