"""The stop words of the shipped lexicon, folded: reading that takes as long as all else that a hook
does before the daemon runs. A test holds the two together."""

STOP_WORDS = frozenset(
    """
    about above after again al algo algunos all also am an and ante antes any aquel aquella are
    as asi at aun aunque be because been before being below between both but by cada can cannot
    como con contra could cual cuando de del desde did do does doing don donde dos down during
    each el ella ellas ellos en entre era eran es esa esas ese eso esos esta estaba estado estan
    estar estas este esto estos few for from fue fueron further ha haber habia hace had han has
    hasta have having hay he her here hers him his how if in into is it its itself just la las
    le les let ll lo los mas may me mi might mis more most mucho must muy my nada ni no nor nos
    nosotros not now nuestra nuestro of off on once only or os other otra otro our ours out over
    own para pero please por porque que quien re same se sea ser shall she should si sin so
    sobre some son soy su such sus tambien tanto te tengo than that the their theirs them then
    there these they this those through ti tiene to todo todos too tu tus un una unas under uno
    unos until up us usted ve very was we were what when where which while who whom whose why
    will with would ya yo you your yours
    """.split()
)
