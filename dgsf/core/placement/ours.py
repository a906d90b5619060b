"""Ours: fragmentation gradient, plus a tie-break by fit, minus what would be stranded, minus waste by price."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dgsf.core.placement.fgd import Fgd, best_columns
from dgsf.core.placement.need import Need
from dgsf.core.placement.pool import Floats, Ints, Pool
from dgsf.core.placement.model import WHOLE
from dgsf.core.placement.prices import room_prices

W = dict(fit=0.1, strand=2.0, price=1.0, gfit=0.0, dF=1.0, tr=0)

class Dgsf(Fgd):
    name: ClassVar[str] = "dgsf"

    def refresh(self, pool: Pool) -> None:
        super().refresh(pool)
        popular = self.workload.popular()
        self._kappa = popular.kappa
        self._prices = room_prices(popular.shared)*WHOLE

    def score(self, pool: Pool, need: Need, rows: Ints) -> tuple[Floats, Ints | None]:
        gpu=pool.room[rows].sum(axis=1); cpu=pool.cpu[rows]; req=need.share[rows]*need.devices
        c2=cpu-need.request.cpu_milli; g2=gpu-req
        fit = 1000*(1-0.5*c2/128000-0.5*g2/8000)
        S0=np.maximum(0,gpu-1000*cpu/self._kappa); S1=np.maximum(0,g2-1000*c2/self._kappa)
        v=W['fit']*fit-W['strand']*(S1-S0)
        if need.whole or not need.devices:
            v=v+W['dF']*self._measure.fall(pool,need,rows,None)
            if W['tr']: v=np.trunc(v/W['tr'])
            return v,None
        which,columns=np.nonzero(need.columns(pool,rows)); rr=rows[which]
        room=pool.room[rr,columns]
        sh=need.share[rr]; rest=room-sh
        waste=self._prices[room]-self._prices[rest]
        v=W['dF']*self._measure.fall(pool,need,rr,columns)+v[which]-W['price']*waste+W['gfit']*(-rest)
        if W['tr']: v=np.trunc(v/W['tr'])
        return best_columns(len(rows),which,columns,v)
