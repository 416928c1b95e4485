// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package gtp

// InfoChangeRequest is the MS Info Change Notification by which an SGSN reports where a
// user has gone (TS 29.060 section 7.5B.1).
type InfoChangeRequest struct {
	IMSI          Optional[IMSI]
	LinkedNSAPI   Optional[uint8]
	RATType       RATType
	Location      Optional[Location]
	IMEI          Optional[IMEI]
	ExtendedFlags Optional[uint8]
	UserCSG       Optional[[]byte]
	Private       Optional[PrivateExtension]
}

// Type returns [TypeInfoChangeRequest].
func (*InfoChangeRequest) Type() MessageType { return TypeInfoChangeRequest }

func (m *InfoChangeRequest) walk(w *walk) {
	if w.onlyV1() {
		return
	}
	element(w, ElementIMSI, conditional, &m.IMSI, imsi)
	element(w, ElementNSAPI, optional, &m.LinkedNSAPI, nsapi)
	value(w, ElementRATType, &m.RATType, rat)
	element(w, ElementLocation, conditional, &m.Location, location)
	element(w, ElementIMEI, conditional, &m.IMEI, imei)
	element(w, ElementExtendedFlags, optional, &m.ExtendedFlags, octet)
	element(w, ElementUserCSG, conditional, &m.UserCSG, octets)
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}

// InfoChangeResponse answers an [InfoChangeRequest] (TS 29.060 section 7.5B.2).
type InfoChangeResponse struct {
	Cause            Cause
	IMSI             Optional[IMSI]
	LinkedNSAPI      Optional[uint8]
	IMEI             Optional[IMEI]
	InfoChangeAction Optional[InfoChangeAction]
	CSGReporting     Optional[uint8]
	Private          Optional[PrivateExtension]
}

// Type returns [TypeInfoChangeResponse].
func (*InfoChangeResponse) Type() MessageType { return TypeInfoChangeResponse }

func (m *InfoChangeResponse) walk(w *walk) {
	if w.onlyV1() {
		return
	}
	value(w, ElementCause, &m.Cause, cause)
	element(w, ElementIMSI, conditional, &m.IMSI, imsi)
	element(w, ElementNSAPI, optional, &m.LinkedNSAPI, nsapi)
	element(w, ElementIMEI, conditional, &m.IMEI, imei)
	element(w, ElementInfoChangeAction, optional, &m.InfoChangeAction, infoChangeAction)
	element(w, ElementCSGReporting, optional, &m.CSGReporting, octet)
	element(w, ElementPrivateExtension, optional, &m.Private, privateExtension)
}
